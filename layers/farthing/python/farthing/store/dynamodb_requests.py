"""The port's operations as DynamoDB requests, written with PynamoDB's expressions. Pure: this
module sends nothing."""

from collections.abc import Sequence
from typing import Any, assert_never

from pynamodb.connection.base import Connection, MetaTable
from pynamodb.expressions.condition import And, Or
from pynamodb.expressions.condition import Condition as Expression
from pynamodb.expressions.operand import Path, Value
from pynamodb.expressions.update import Action, AddAction, SetAction

from farthing.store.attributes import PK, SK, TypedItem, marshal, marshal_key, typed
from farthing.store.table import (
    Absent,
    Add,
    AtLeast,
    BatchWrite,
    Check,
    Condition,
    Delete,
    Equals,
    Key,
    LessThan,
    Put,
    Query,
    Table,
    TransactWrite,
    Write,
)

Request = dict[str, Any]

ATTRIBUTE_DEFINITIONS = [
    {"AttributeName": PK, "AttributeType": "S"},
    {"AttributeName": SK, "AttributeType": "S"},
]
KEY_SCHEMA = [
    {"AttributeName": PK, "KeyType": "HASH"},
    {"AttributeName": SK, "KeyType": "RANGE"},
]

_OPERATION: dict[type[Write], str] = {Put: "PutItem", Delete: "DeleteItem", Add: "UpdateItem"}
_STEP: dict[type[TransactWrite], str] = {
    Put: "Put",
    Delete: "Delete",
    Add: "Update",
    Check: "ConditionCheck",
}


class Requests:
    """Requests to the tables under one name prefix."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        for table in Table:
            # PynamoDB gets the schema here, so it does not call DescribeTable.
            schema = {
                "TableName": self.name(table),
                "KeySchema": KEY_SCHEMA,
                "AttributeDefinitions": ATTRIBUTE_DEFINITIONS,
            }
            connection.add_meta_table(MetaTable(schema))

    def name(self, table: Table) -> str:
        return f"{self._prefix}{table}"

    def get(self, table: Table, pk: str, sk: str) -> Request:
        return {
            "TableName": self.name(table),
            "Key": marshal_key(pk, sk),
            "ConsistentRead": True,
        }

    def get_many(self, table: Table, keys: Sequence[Key]) -> Request:
        typed_keys = [marshal_key(pk, sk) for pk, sk in keys]
        return {self.name(table): {"Keys": typed_keys, "ConsistentRead": True}}

    def query(self, query: Query) -> Request | None:
        """The request, or None for an empty range, which DynamoDB would refuse."""
        after = _start(query)
        if _is_empty(query):
            return None
        names: dict[str, str] = {}
        values: dict[str, Any] = {}
        expression = _range(query).serialize(names, values)
        request: Request = {
            "TableName": self.name(query.table),
            "KeyConditionExpression": expression,
            "ExpressionAttributeNames": {short: name for name, short in names.items()},
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not query.backward,
            "ConsistentRead": True,
        }
        if query.limit is not None:
            request["Limit"] = query.limit
        if after is not None:
            request["ExclusiveStartKey"] = marshal_key(query.pk, after)
        return request

    def write(self, write: Write) -> tuple[str, Request]:
        request = self._conditioned(write)
        request["ReturnValues"] = "ALL_NEW" if isinstance(write, Add) else "ALL_OLD"
        return _OPERATION[type(write)], request

    def write_batch(self, writes: Sequence[BatchWrite]) -> Request:
        request: dict[str, list[Request]] = {}
        for write in writes:
            request.setdefault(self.name(write.table), []).append(_batch_step(write))
        return request

    def transact(self, writes: Sequence[TransactWrite]) -> list[Request]:
        return [{_STEP[type(write)]: self._conditioned(write)} for write in writes]

    def _conditioned(self, write: TransactWrite) -> Request:
        request: Request = self._connection.get_operation_kwargs(
            self.name(write.table),
            write.pk,
            write.sk,
            key="Item" if isinstance(write, Put) else "Key",
            attributes=marshal(write.item) if isinstance(write, Put) else None,
            actions=(_actions(write) or None) if isinstance(write, Add) else None,
            condition=None if write.condition is None else _expression(write.condition),
            return_values_on_condition_failure=None if write.condition is None else "ALL_OLD",
        )
        return request


def _batch_step(write: BatchWrite) -> Request:
    key: TypedItem = marshal_key(write.pk, write.sk)
    if isinstance(write, Put):
        return {"PutRequest": {"Item": marshal(write.item) | key}}
    return {"DeleteRequest": {"Key": key}}


def _expression(condition: Condition) -> Expression:
    match condition:
        case Absent():
            return Path([PK]).does_not_exist()
        case Equals(attribute, value):
            return Path([attribute]) == typed(value)
        case LessThan(attribute, bound):
            path = Path([attribute])
            below = path < typed(bound)
            return Or(path.does_not_exist(), below) if bound > 0 else below
        case AtLeast(attribute, bound):
            return Path([attribute]) >= typed(bound)
    assert_never(condition)


def _actions(write: Add) -> list[Action]:
    added = [
        AddAction(Path([name]), Value(typed(amount))) for name, amount in write.amounts.items()
    ]
    assigned = [
        SetAction(Path([name]), Value(typed(value))) for name, value in write.assign.items()
    ]
    return [*added, *assigned]


def _start(query: Query) -> str | None:
    """The sort key after which reading starts. None if that is outside the range, which DynamoDB
    refuses: then the whole range is read."""
    if query.after is None:
        return None
    if query.backward:
        beyond = query.high is not None and query.after > query.high
    else:
        beyond = query.after < (query.low or "\0")
    return None if beyond else query.after


def _is_empty(query: Query) -> bool:
    low, high, after = query.low or "", query.high, query.after
    if high is not None and (not high or low > high):
        return True
    if after is None:
        return False
    return after <= low if query.backward else high is not None and after >= high


def _range(query: Query) -> Expression:
    """The range as one condition on the sort key: DynamoDB accepts no second one."""
    partition = Path([PK]) == typed(query.pk)
    sk = Path([SK])
    match query.low or None, query.high:
        case None, None:
            return partition
        case low, None:
            return And(partition, sk >= typed(low))
        case None, high:
            return And(partition, sk <= typed(high))
        case low, high:
            return And(partition, sk.between(typed(low), typed(high)))
    raise AssertionError("unreachable")
