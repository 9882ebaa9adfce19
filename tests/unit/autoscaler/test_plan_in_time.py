"""The plan against a SLURM and a cloud that do what they can to it: it always comes to an end.

The game itself fails where a node has no verdict before ResumeTimeout, or a VM is deleted whose
node is in service.
"""

import pytest
from simkit import Game


@pytest.mark.parametrize("faults", [0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(12))
def test_all_jobs_end_and_nothing_is_left(seed: int, faults: float) -> None:
    game = Game(seed, faults)
    for _ in range(900):
        if game.random.random() < 0.02:
            game.submit(game.random.choice([1, 1, 1, 2, 4]), game.random.randint(5, 100))
        game.second()
    # Whatever is broken is mended now, and what is left must come to its end.
    game.faults = 0
    game.room.clear()
    game.hung.clear()
    for _ in range(3000):
        game.second()
        if game.quiet:
            break
    assert game.quiet
    assert sorted(game.done) == list(range(1, game.serial + 1))
