"""The CDK app as it is deployed into the emulator: the production stacks, but for what the emulator
cannot do (see differences.py)."""

import os
import sys

from aws_cdk import App, CfnResource, CliCredentialsStackSynthesizer
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import IConstruct

from infra import app as production
from infra.edge import EdgeStack
from infra.gateway import STAGE, Addresses
from infra.layer_contents import THIS_MACHINE
from infra.storage import StorageStack
from tests.rehearsal.differences import LEFT_OUT

EMULATOR = os.environ.get("FARTHING_EMULATOR", "127.0.0.1:4566")


class EmulatedStorage(StorageStack):
    """Policies and functions are given the secret's ARN, which a reference is not here."""

    def make_key(self) -> secretsmanager.ISecret:
        made = super().make_key().node.default_child
        assert isinstance(made, secretsmanager.CfnSecret)
        return secretsmanager.Secret.from_secret_complete_arn(self, "KeyByArn", made.attr_id)


class EmulatedEdge(EdgeStack):
    """The emulator serves its APIs under paths of its own host, and clients go to them there."""

    is_only_way = False

    def public_addresses(self) -> Addresses:
        apis = f"{EMULATOR}/_aws/execute-api"
        socket = f"{apis}/{self.gateways.socket_api.api_id}/{STAGE}"
        web = f"{apis}/{self.gateways.web_api.api_id}/$default"
        return Addresses(f"ws://{socket}", f"http://{web}", f"http://{socket}")


def is_left_out(construct: IConstruct) -> bool:
    kind = construct.cfn_resource_type if isinstance(construct, CfnResource) else ""
    return kind in LEFT_OUT or construct.node.path in LEFT_OUT


def main() -> None:
    app = App(
        context={
            "removal": "destroy",
            "allow_private_hosts": "1",
            "follow_content": "cache",
            "page": "false",
        },
        default_stack_synthesizer=CliCredentialsStackSynthesizer(),
    )
    production.build(app, storage=EmulatedStorage, edge=EmulatedEdge, layer_platform=THIS_MACHINE)
    for construct in app.node.find_all():
        parent = construct.node.scope
        if parent is not None and is_left_out(construct):
            parent.node.try_remove_child(construct.node.id)
            print(f"left out: {construct.node.path}", file=sys.stderr)
    app.synth()


if __name__ == "__main__":
    main()
