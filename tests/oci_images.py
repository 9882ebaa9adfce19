"""OCI images for tests, as layouts, of tar archives, as mmdebstrap makes them."""

import hashlib
import json
from pathlib import Path
from typing import Any


def layout(
    folder: Path, layer: bytes, *, architecture: str = "amd64", variables: tuple[str, ...] = ()
) -> Path:
    """Write an image of one layer, a tar archive that is not compressed; return its folder."""
    (folder / "blobs/sha256").mkdir(parents=True)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": list(variables), "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(folder, _json(config), "application/vnd.oci.image.config.v1+json"),
        "layers": [_blob(folder, layer, "application/vnd.oci.image.layer.v1.tar")],
    }
    entry = _blob(folder, _json(manifest), "application/vnd.oci.image.manifest.v1+json")
    (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return folder


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _blob(folder: Path, content: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}
