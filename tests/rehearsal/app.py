"""The CDK app as it is deployed into the emulator: the production stacks, with each difference
named here and nowhere else."""

import os
import sys

from aws_cdk import App, CfnResource, CliCredentialsStackSynthesizer

from infra import app as production
from infra.edge import EdgeStack
from infra.gateway import STAGE, Addresses
from infra.layer_contents import THIS_MACHINE

EMULATOR = os.environ.get("FARTHING_EMULATOR", "127.0.0.1:4566")

# Types that the emulator does not know, and what that means for the rehearsal.
LEFT_OUT = {
    "AWS::ApiGatewayV2::RouteResponse": "the emulator returns a handler's body without being told",
    "AWS::Budgets::Budget": "nothing there costs anything",
}


class EmulatedEdge(EdgeStack):
    """The emulator serves its APIs under paths of its own host, and no sockets by CloudFront."""

    def public_addresses(self) -> Addresses:
        apis = f"{EMULATOR}/_aws/execute-api"
        socket = f"{apis}/{self.doors.socket_api.api_id}/{STAGE}"
        web = f"{apis}/{self.doors.web_api.api_id}/$default"
        return Addresses(f"ws://{socket}", f"http://{web}", f"http://{socket}")


def main() -> None:
    app = App(
        context={"removal": "destroy"},
        # The emulator does not know the condition that the bootstrap's own roles have.
        default_stack_synthesizer=CliCredentialsStackSynthesizer(),
    )
    production.build(app, edge=EmulatedEdge, layer_platform=THIS_MACHINE)
    for construct in app.node.find_all():
        if isinstance(construct, CfnResource) and construct.cfn_resource_type in LEFT_OUT:
            parent = construct.node.scope
            assert parent is not None
            parent.node.try_remove_child(construct.node.id)
            print(f"left out: {construct.node.path}", file=sys.stderr)
    app.synth()


if __name__ == "__main__":
    main()
