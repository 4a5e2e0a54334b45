"""`make rehearse`: the app deployed by the CDK CLI into an emulator of AWS on this machine, driven
by real clients, hurt in the ways that it must survive, and taken away again."""
