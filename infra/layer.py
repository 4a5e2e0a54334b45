"""The library and its dependencies as one Lambda layer.

The layer's hash is that of its sources, so a template is the same whether or not the layer was
built: synthesis builds nothing, and `cdk deploy` builds the layer before it uploads it.
"""

from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as awslambda
from constructs import Construct

from infra.layer_contents import LAMBDA, LIBRARY, build, fingerprint


@jsii.implements(ILocalBundling)
class _Pip:
    def __init__(self, platform: str) -> None:
        self._platform = platform

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        build(Path(output_dir), self._platform)
        return True


class LibraryLayer(awslambda.LayerVersion):
    def __init__(self, scope: Construct, id: str, *, platform: str = LAMBDA) -> None:
        super().__init__(
            scope,
            id,
            description="The farthing library and its dependencies",
            compatible_runtimes=[awslambda.Runtime.PYTHON_3_13],
            compatible_architectures=[awslambda.Architecture.ARM_64],
            code=awslambda.Code.from_asset(
                str(LIBRARY.parents[1]),
                asset_hash=fingerprint(platform),
                asset_hash_type=AssetHashType.CUSTOM,
                bundling=BundlingOptions(
                    image=DockerImage.from_registry("unused"), local=_Pip(platform)
                ),
            ),
        )
