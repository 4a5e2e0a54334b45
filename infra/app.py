"""The CDK app: `make synth` writes its templates, `cdk deploy` carries them out."""

import os
from pathlib import Path

from aws_cdk import App

from infra.analytics import AnalyticsStack
from infra.deployment import Deployment
from infra.edge import EdgeStack
from infra.layer_contents import LAMBDA
from infra.operations import OperationsStack
from infra.page import PageStack
from infra.relay import RelayStack
from infra.storage import StorageStack
from infra.summary import lines

# Without the CDK CLI nothing is uploaded, so nothing is built.
NOTHING_BUILT: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}


def build(
    app: App,
    *,
    storage: type[StorageStack] = StorageStack,
    edge: type[EdgeStack] = EdgeStack,
    layer_platform: str = LAMBDA,
) -> None:
    """A rehearsal brings stacks of its own, where its emulator differs from AWS."""
    deployment = Deployment.from_context(app.node.try_get_context, app.node.get_all_context())
    kept = storage(app, "FarthingStorage", deployment)
    gateways = edge(app, "FarthingEdge", deployment)
    relay = RelayStack(
        app,
        "FarthingRelay",
        deployment,
        only_by_edge=gateways.is_only_way,
        layer_platform=layer_platform,
    )
    # Stacks read what those before them tell (see shared.py), and refer to nothing of theirs.
    relay.add_dependency(kept)
    relay.add_dependency(gateways)
    if deployment.edge and deployment.page:
        PageStack(app, "FarthingPage", deployment).add_dependency(relay)
    if deployment.analytics:
        AnalyticsStack(app, "FarthingAnalytics", deployment).add_dependency(relay)
    if deployment.operations:
        OperationsStack(app, "FarthingOperations", deployment).add_dependency(relay)


def main() -> None:
    folder = os.environ.get("CDK_OUTDIR", "cdk.out")  # the CLI says where
    app = App(outdir=folder, context=NOTHING_BUILT)
    build(app)
    app.synth()
    print("\n".join(lines(Path(folder))))


if __name__ == "__main__":
    main()
