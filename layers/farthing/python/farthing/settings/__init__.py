"""Every setting, each an environment variable `FARTHING_<NAME>`, in one typed object.

A section of the settings is one module here. It states the name, type, default, description and
check of each. The tables in docs/settings.md and the relay information document are made from them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from farthing.btp_nips.models import Model
from farthing.ilp import address
from farthing.ilp.tariff import Tariff
from farthing.nostr.events import public_key_of
from farthing.settings.aether import Aether
from farthing.settings.broadcasting import Broadcasting
from farthing.settings.connections import Connections
from farthing.settings.following import Following
from farthing.settings.identity import Identity
from farthing.settings.interledger import Interledger
from farthing.settings.limits import Limits
from farthing.settings.process import Process
from farthing.settings.routing import Routing
from farthing.settings.subscriptions import Subscriptions
from farthing.settings.values import READERS, InvalidValue, check_number
from farthing.settings.writing import Writing

if TYPE_CHECKING:
    from farthing.btp_nips.fees import FeeSchedule

PREFIX = "FARTHING_"
# Variables of other readers: functions, the deployment's files, the examples and the tests.
_NOT_SETTINGS = frozenset(
    {"BRAKED", "CONFIG", "CONNECTIONS_URL", "DOMAIN", "DYNAMODB_LOCAL", "EMULATOR", "KEY_VERSION",
     "NODE_MODULES", "ORIGIN_SECRET", "TOKEN", "UPSTREAM"}
)  # fmt: skip
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class InvalidSetting(ValueError):
    """A setting that cannot be used; the message names it."""


# To generate these methods for so many fields would take 4 ms of each cold start. They are written
# by hand below. Type checkers still see those of a dataclass.
_BY_HAND: Any = {"init": False, "repr": False, "eq": False}


@dataclass(frozen=True, **_BY_HAND)
class Settings(
    Identity,
    Process,
    Writing,
    Interledger,
    Routing,
    Following,
    Broadcasting,
    Subscriptions,
    Aether,
    Limits,
    Connections,
):
    """All settings, and the values that follow from them."""

    # Not a setting: whether these are the settings of a deployed agent, whose data is in DynamoDB.
    deployed: bool = False

    if not TYPE_CHECKING:

        def __init__(self, **given: Any) -> None:
            for field in fields(self):
                if field.name in given:
                    value = given.pop(field.name)
                elif field.default is not MISSING:
                    value = field.default
                else:
                    value = field.default_factory()
                object.__setattr__(self, field.name, value)
            if given:
                raise TypeError(f"expected names of settings, got {', '.join(given)}")
            self.__post_init__()

        def __repr__(self) -> str:
            shown = (each.name for each in fields(self) if each.repr)
            return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

        def __eq__(self, other: object) -> bool:
            if not isinstance(other, Settings):
                return NotImplemented
            return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))

    @classmethod
    def from_env(cls, environment: Mapping[str, str], **more: Any) -> Self:
        settings = {PREFIX + setting.name.upper(): setting for setting in declared()}
        _refuse_unknown(environment, settings)
        given = {
            setting.name: _read(variable, setting, environment[variable])
            for variable, setting in settings.items()
            if variable in environment
        }
        return cls(**given, **more)

    def __post_init__(self) -> None:
        for setting in declared():
            value = getattr(self, setting.name)
            check = setting.metadata["check"]
            try:
                if type(value) is int:
                    check_number(value)
                if check is not None and (value or setting.default):
                    check(value)
            except InvalidValue as error:
                raise InvalidSetting(f"{PREFIX}{setting.name.upper()}: {error}") from None
        if self.public_key and self.secret_key and self.public_key != self.pubkey:
            raise InvalidSetting(
                f"{PREFIX}PUBLIC_KEY: expected the public key of {PREFIX}SECRET_KEY"
            )
        if self.ilp_address and not address.is_valid(self.ilp_address):
            raise InvalidSetting(f"{PREFIX}ILP_ADDRESS: expected an ILP address, got another text")

    @cached_property
    def subscription_fees(self) -> "FeeSchedule":
        """The fees of paid subscriptions: the only source of every statement about them."""
        # Imported here, because every import makes a cold start slower, and few functions sell
        # subscriptions.
        from farthing.btp_nips.fees import FeeSchedule

        return FeeSchedule(
            models=frozenset(map(Model, self.subscription_models)),
            base_fee=self.subscription_base_fee,
            minute_fee=self.subscription_minute_fee,
            complexity_fee=self.subscription_complexity_fee,
            setup_fee=self.subscription_setup_fee,
            event_fee=self.subscription_event_fee,
            hybrid_fee=self.subscription_hybrid_fee,
            hybrid_event_fee=self.subscription_hybrid_event_fee,
            default_ttl=min(self.subscription_default_ttl, self.subscription_max_ttl),
            max_ttl=self.subscription_max_ttl,
            free_events=self.subscription_free_events,
            free_ttl=self.subscription_free_ttl,
            asset_code=self.asset_code,
            asset_scale=self.asset_scale,
        )

    @cached_property
    def pubkey(self) -> str:
        if self.public_key and not self.secret_key:
            return self.public_key
        return public_key_of(bytes.fromhex(self.secret_key))

    @cached_property
    def secret(self) -> bytes:
        """The owner's secret key, which signs, encrypts, and derives other keys."""
        if not self.secret_key:
            raise InvalidSetting(f"{PREFIX}SECRET_KEY: expected the owner's key, got none")
        return bytes.fromhex(self.secret_key)

    @cached_property
    def own_ilp_address(self) -> str:
        return self.ilp_address or f"g.agent.{self.pubkey}"

    @cached_property
    def tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.price_kinds.items()}
        return Tariff(
            self.price_per_byte,
            kinds,
            self.asset_code,
            self.asset_scale,
            self.price_per_tag,
            self.free_tags,
        )

    @cached_property
    def aether_tariff(self) -> Tariff:
        kinds = {int(kind): price for kind, price in self.aether_price_kinds.items()}
        return replace(self.tariff, kinds=kinds)

    @property
    def is_free(self) -> bool:
        return self.tariff.is_free

    @cached_property
    def ilp_url(self) -> str:
        return f"{self.http_url}/ilp"

    @property
    def listens_everywhere(self) -> bool:
        """Whether the host is a wildcard, which others cannot connect to."""
        return self.host in _WILDCARDS

    @cached_property
    def authority(self) -> str:
        """The host and port by which this machine reaches the local server."""
        host = _WILDCARDS.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @cached_property
    def socket_url(self) -> str:
        """The relay's WebSocket URL: the public one, if one is set."""
        return self.relay_url.rstrip("/") or f"ws://{self.authority}"

    @cached_property
    def purses_url(self) -> str:
        """The page about purses."""
        return f"{self.http_url}/purse"

    def purse_url(self, pubkey: str) -> str:
        """The page that explains how to fill the purse of a key."""
        # Imported here, because few functions name a purse.
        from farthing.nostr.nip19 import Npub, encode

        return f"{self.purses_url}/{encode(Npub(pubkey))}"

    @cached_property
    def http_url(self) -> str:
        """The relay's HTTP URL: its WebSocket URL with the other scheme, unless another is set."""
        if self.web_url:
            return self.web_url.rstrip("/")
        return self.socket_url.replace("ws", "http", 1)


def declared() -> "list[Field[Any]]":
    """Every setting, section by section."""
    return [setting for section in Settings.__bases__ for setting in fields(section)]


def _refuse_unknown(environment: Mapping[str, str], known: Mapping[str, "Field[Any]"]) -> None:
    for name in environment:
        if not name.startswith(PREFIX) or name in known:
            continue
        # The variable names a secret. Lambda functions read the content of the secret.
        secret = known.get(name.removesuffix("_ARN").removesuffix("_PARAMETER"))
        if name.removeprefix(PREFIX) in _NOT_SETTINGS or (secret and not secret.repr):
            continue
        if name.endswith("_QUEUE_URL"):  # the URL of a queue in the surface, for Lambda functions
            continue
        raise InvalidSetting(f"there is no setting {name}{nearest(name, known)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the known name that was probably meant."""
    # Imported here, because only this message needs it.
    from difflib import get_close_matches

    found = get_close_matches(name, list(names), 1)
    return f"; the nearest is {found[0]}" if found else ""


def _read(variable: str, setting: "Field[Any]", text: str) -> Any:
    read = setting.metadata["read"] or READERS[setting.type]
    try:
        return read(text)
    except InvalidValue as error:
        raise InvalidSetting(f"{variable}: {error}") from None


def documentation() -> dict[str, list[tuple[str, str, str]]]:
    """(variable, default, description) of every setting, by the description of its section."""
    return {
        section.__doc__ or "": [_row(setting) for setting in fields(section)]
        for section in Settings.__bases__
    }


def _row(setting: "Field[Any]") -> tuple[str, str, str]:
    default = "" if setting.default in (MISSING, None) else setting.default
    shown = str(int(default)) if isinstance(default, bool) else str(default)
    return PREFIX + setting.name.upper(), shown, setting.metadata["about"]
