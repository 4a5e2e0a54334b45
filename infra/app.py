"""The CDK app: `make synth` writes its templates, `cdk deploy` carries them out."""

from aws_cdk import App

from infra.storage import StorageStack


def build(app: App) -> None:
    prefix = app.node.try_get_context("prefix") or "farthing-"
    StorageStack(app, "FarthingStorage", prefix=prefix)


def main() -> None:
    app = App(outdir="cdk.out")
    build(app)
    app.synth()


if __name__ == "__main__":
    main()
