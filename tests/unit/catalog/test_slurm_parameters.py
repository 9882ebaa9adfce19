"""The tables of SLURM's parameters agree with each other."""

from muster.catalog.slurm_parameters import (
    OWNED,
    OWNED_IN_CLOUD,
    REFUSED_VALUES,
    RELEASES,
    REMOVED,
    UNSAFE_VALUES,
    parameters,
)


def test_every_parameter_has_releases_in_order() -> None:
    for file, least in (("slurm.conf", 200), ("cgroup.conf", 20)):
        assert len(parameters(file)) > least
        for parameter in parameters(file).values():
            assert RELEASES.index(parameter.first) <= RELEASES.index(parameter.last)


def test_what_the_tables_name_is_a_parameter() -> None:
    # Not parameters: parts of other lines, or words that the parser handles before the table.
    elsewhere = {"defmempergpu", "include", "accountingstorageloc", "oversubscribe", "shared"}
    for file, owned in OWNED.items():
        assert set(owned) - set(parameters(file)) <= elsewhere
    assert set(OWNED_IN_CLOUD) <= set(parameters("slurm.conf"))
    for refused in REFUSED_VALUES:
        assert refused.parameter.lower() in parameters(refused.file)
    for file, parameter, *_ in UNSAFE_VALUES:
        assert parameter in parameters(file)


def test_every_parameter_has_a_type_that_the_checks_know() -> None:
    with_choices = {"choice", "flags"}
    kinds = {"number", "percent", "boolean", "time", "ports", "licenses", "path", "words", "text"}
    for file in ("slurm.conf", "cgroup.conf"):
        for parameter in parameters(file).values():
            wanted = parameter.type
            assert wanted.kind in kinds | with_choices, parameter
            assert (wanted.kind == "number") == (wanted.most > 0), parameter
            assert (wanted.kind in with_choices) == bool(wanted.choices), parameter


def test_what_ends_slurm_is_not_among_what_it_accepts() -> None:
    for file, removed in REMOVED.items():
        assert not set(removed) & set(parameters(file))
        assert not set(removed) & set(OWNED[file])


def test_known_differences_between_releases() -> None:
    slurm, cgroup = parameters("slurm.conf"), parameters("cgroup.conf")
    assert (slurm["suspendexcstates"].first, slurm["metricstype"].first) == ("23.02", "25.11")
    assert slurm["corespecplugin"].last < "24.11"
    assert cgroup["taskaffinity"].last < "22.05"
    assert cgroup["constrainkmemspace"].last < "24.11"
    assert cgroup["enablecontrollers"].first > "22.05"
    assert cgroup["ignoresystemd"].first <= "22.05"
    assert cgroup["cgroupautomount"].last < "23.11"
