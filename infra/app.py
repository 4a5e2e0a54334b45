"""The CDK app: `make synth` writes its templates, `cdk deploy` deploys them."""

import os
from pathlib import Path

from aws_cdk import App, Stack

from infra.analytics import AnalyticsStack
from infra.deployment import Deployment
from infra.edge import EdgeStack
from infra.layer_contents import LAMBDA
from infra.operations import OperationsStack
from infra.page import PageStack
from infra.relay import RelayStack
from infra.storage import StorageStack
from infra.summary import lines

# With this as a cost allocation tag, the operator sees what one deployment costs.
TAG = "farthing:deployment"
# Without the CDK CLI nothing is uploaded, so no asset is built.
NOTHING_BUILT: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}


def build(
    app: App,
    *,
    storage: type[StorageStack] = StorageStack,
    edge: type[EdgeStack] = EdgeStack,
    layer_platform: str = LAMBDA,
) -> None:
    """Add all stacks to the app. A rehearsal passes its own `storage` and `edge`, because its
    emulator differs from AWS."""
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
    # A stack reads values of earlier stacks by parameters (see shared.py), not by references.
    relay.add_stack_dependency(kept)
    relay.add_stack_dependency(gateways)
    if deployment.edge and deployment.page:
        PageStack(app, "FarthingPage", deployment).add_stack_dependency(relay)
    if deployment.analytics:
        AnalyticsStack(app, "FarthingAnalytics", deployment).add_stack_dependency(relay)
    if deployment.operations:
        OperationsStack(app, "FarthingOperations", deployment).add_stack_dependency(relay)
    for stack in app.node.children:
        if isinstance(stack, Stack):
            # CloudFormation gives the tag to every resource of the stack that can have one.
            stack.tags.set_tag(TAG, deployment.prefix)


def main() -> None:
    folder = os.environ.get("CDK_OUTDIR", "cdk.out")  # set by the CDK CLI
    app = App(outdir=folder, context=NOTHING_BUILT)
    build(app)
    app.synth()
    print("\n".join(lines(Path(folder))))


if __name__ == "__main__":
    main()
