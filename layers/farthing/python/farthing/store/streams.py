"""Changes as the events that DynamoDB Streams sends to Lambda: made from an outbox on one machine,
and parsed by the handlers both there and in the cloud."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from farthing.store.attributes import (
    TypedItem,
    marshal_json,
    marshal_key,
    unmarshal_json,
    unmarshal_key,
)
from farthing.store.table import Item, Table

if TYPE_CHECKING:  # a handler in the cloud does not need SQLite
    from farthing.store.sqlite_outbox import OutboxChange

_SEQUENCE_DIGITS = 21  # DynamoDB's have 21 to 40; numbers of one length sort correctly as text
_STREAM_LABEL = "1970-01-01T00:00:00.000"


class StreamChange(NamedTuple):
    """A change of an item. `old` is None for a new item, `new` for a deleted one."""

    table: Table
    pk: str
    sk: str
    old: Item | None
    new: Item | None
    sequence: str


class Record(dict[str, Any]):
    """A record that is handed over within the process, together with its change, so that it need
    not be parsed again. The form that Lambda gets is made on the first look at it."""

    __slots__ = ("_created", "_outbox", "_prefix", "change", "stored")

    def __init__(self, outbox: "OutboxChange", arn_prefix: str, created: float) -> None:
        super().__init__()
        self._outbox = outbox
        self._prefix = arn_prefix
        self._created = created
        sequence, table, pk, sk, old, new = outbox
        self.change = StreamChange(table, pk, sk, old, new, _digits(sequence))
        # The parsed content, after the first handler has read it. All handlers share it.
        self.stored: Any = None

    def __missing__(self, name: str) -> Any:
        if self:
            raise KeyError(name)
        self.update(_body(self._outbox, self._prefix, self._created))
        return self[name]


def records_of(
    changes: Sequence["OutboxChange"], arn_prefix: str, *, created: float = 0
) -> dict[str, Any]:
    """The stream event for these changes. `arn_prefix` is a table's ARN up to the table's own name,
    and `created` is the epoch second in the records."""
    return {"Records": [_body(change, arn_prefix, created) for change in changes]}


def _digits(sequence: int) -> str:
    return str(sequence).zfill(_SEQUENCE_DIGITS)


def _body(change: "OutboxChange", arn_prefix: str, created: float) -> dict[str, Any]:
    sequence = _digits(change.sequence)
    return {
        "eventID": sequence,
        "eventName": _event_name(change.old, change.new),
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": arn_prefix.split(":")[3],
        "dynamodb": {
            "ApproximateCreationDateTime": int(created),
            "Keys": marshal_key(change.pk, change.sk),
            **_images(change),
            "SequenceNumber": sequence,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": f"{arn_prefix}{change.table}/stream/{_STREAM_LABEL}",
    }


def _event_name(old: Item | None, new: Item | None) -> str:
    if new is None:
        return "REMOVE"
    return "INSERT" if old is None else "MODIFY"


def _images(change: "OutboxChange") -> dict[str, TypedItem]:
    images = {"NewImage": change.new, "OldImage": change.old}
    key = marshal_key(change.pk, change.sk)
    return {name: key | marshal_json(item) for name, item in images.items() if item is not None}


def parse_record(record: Mapping[str, Any]) -> StreamChange:
    if isinstance(record, Record):
        return record.change
    body = record["dynamodb"]
    pk, sk = unmarshal_key(body["Keys"])
    return StreamChange(
        table=_table(record["eventSourceARN"]),
        pk=pk,
        sk=sk,
        old=_image(body, "OldImage"),
        new=_image(body, "NewImage"),
        sequence=body["SequenceNumber"],
    )


def _image(body: Mapping[str, Any], name: str) -> Item | None:
    return unmarshal_json(body[name]) if name in body else None


def _table(arn: str) -> Table:
    """The table whose name is at the end of the ARN, after the deployment's prefix."""
    name = arn.partition(":table/")[2].partition("/")[0]
    for table in Table:
        if name.endswith(table):
            return table
    raise ValueError(f"a stream of an unknown table: {arn}")
