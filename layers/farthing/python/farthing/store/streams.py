"""Changes as the events that DynamoDB Streams sends to Lambda: made from an outbox on one machine,
and taken apart by the handlers in either place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farthing.store.attributes import (
    TypedItem,
    marshal_json,
    marshal_key,
    unmarshal_json,
    unmarshal_key,
)
from farthing.store.table import Item, Table

if TYPE_CHECKING:  # a handler in the cloud has no use for SQLite
    from farthing.store.sqlite import OutboxChange

_SEQUENCE_DIGITS = 21  # DynamoDB's have 21 to 40; of one length they sort as numbers do
_STREAM_LABEL = "1970-01-01T00:00:00.000"


@dataclass(frozen=True, slots=True)
class StreamChange:
    """`old` is None where the item is new, `new` where it is gone."""

    table: Table
    pk: str
    sk: str
    old: Item | None
    new: Item | None
    sequence: str


class Record(dict[str, Any]):
    """A record that was made here, and still knows of what: it need not be taken apart again."""

    __slots__ = ("change",)

    change: StreamChange


def records_of(
    changes: Sequence["OutboxChange"], arn_prefix: str, *, created: float = 0
) -> dict[str, Any]:
    """The event for these changes. `arn_prefix` is a table's ARN up to the table's own name, and
    `created` the epoch second that the records bear."""
    return {"Records": [_record(change, arn_prefix, created) for change in changes]}


def _record(change: "OutboxChange", arn_prefix: str, created: float) -> Record:
    sequence = str(change.sequence).zfill(_SEQUENCE_DIGITS)
    record = Record(_body(change, arn_prefix, created, sequence))
    record.change = StreamChange(
        change.table, change.pk, change.sk, change.old, change.new, sequence
    )
    return record


def _body(change: "OutboxChange", arn_prefix: str, created: float, sequence: str) -> dict[str, Any]:
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
    """The table whose name ends the ARN's: what stands before is the deployment's prefix."""
    name = arn.partition(":table/")[2].partition("/")[0]
    for table in Table:
        if name.endswith(table):
            return table
    raise ValueError(f"a stream of an unknown table: {arn}")
