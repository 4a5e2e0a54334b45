"""The library of the Glue jobs as an asset. Its hash is that of its files."""

import shutil
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.job_contents import ROOT, files, fingerprint


@jsii.implements(ILocalBundling)
class _Copy:
    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        for path, place in files():
            target = Path(output_dir) / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        return True


class JobLibrary(assets.Asset):
    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(
            scope,
            id,
            path=str(ROOT / "glue_jobs"),
            asset_hash=fingerprint(),
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=BundlingOptions(image=DockerImage.from_registry("unused"), local=_Copy()),
        )
