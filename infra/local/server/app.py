"""The local server: one port for HTTP and WebSocket, with the same handlers as in the cloud."""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from farthing.agent.broadcast import rebroadcast
from farthing.agent.feeds import caching, is_reading, is_rebroadcasting
from farthing.agent.identity import publish_identity
from farthing.agent.relay_client import SocketRelays
from farthing.connector.subscriptions.sweeping import wake_all
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.sockets import (
    AETHER_SUBPROTOCOL,
    PATH_HEADER,
    SUBPROTOCOL_HEADER,
    offers_aether,
    opens_aether,
)
from farthing.nostr.messages import Prefix, Refused, Verb
from farthing.nostr.nip19 import Npub, encode
from farthing.ports.hosts import HostRules
from farthing.ports.search import NoSearch
from farthing.relay.asked import is_at_hand
from farthing.relay.message_length import TooLong, is_too_long
from farthing.relay.moderation import is_blocked
from farthing.relay.receive import refuse
from farthing.relay.sealed_sets import SEALED
from farthing.settings import Settings
from farthing.store.numbering import Numbering
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Table
from farthing.surface import MESSAGES, SCHEDULES, STREAMS, Schedule, Stream, Work
from infra.local.server.backlog import Backlog
from infra.local.server.client_address import limit_key, peer_of
from infra.local.server.connection_limits import ConnectionLimits
from infra.local.server.event_streams import EventStreams, notifying
from infra.local.server.feeds import FollowedRelays
from infra.local.server.figures import PumpFigures
from infra.local.server.folder import CannotStart, hold_folder
from infra.local.server.gateway import SocketContext, aether_type
from infra.local.server.http_server import CLIENT, HttpServer, own_name, refusal
from infra.local.server.identity import with_identity
from infra.local.server.logs import configure_logs
from infra.local.server.meter import LocalMeter
from infra.local.server.outbound import LocalOutbound
from infra.local.server.outbox import OutboxRunner
from infra.local.server.packet_server import PacketServer
from infra.local.server.peers import ensure_local_peer
from infra.local.server.readers import LocalReaderProcesses, number_of_readers
from infra.local.server.search import SEARCH_STREAM, FtsSearch
from infra.local.server.slow_lane import LocalSlowLane
from infra.local.server.sockets import Handler, LocalConnections, Socket
from infra.local.server.streams import StreamPump
from infra.local.server.wakes import LocalWakes
from infra.local.server.web_routes import WebRoutes, load_handler
from infra.local.server.workers import LoopMailbox, Workers
from infra.local.server.write_scheduler import WriteScheduler

log = logging.getLogger("farthing")

_PING_SECONDS = 30
_NUMBERING_SECONDS = 1.0
_PURGE_SECONDS = 30
_STOP_SECONDS = 10
# How long a stop waits for the answers of next hops and other peers. A packet without an answer is
# then rejected, and its hold released.
_ANSWER_SECONDS = 3
_SYNC_WORKERS = 2
# Threads for large requests, most of which wait for their turn. Each has a cache of its own.
_SPARE_WORKERS = 8
_GOODBYE_SECONDS = 2
_BACKLOG = 1024  # connections that wait to be taken
# API Gateway ends connections after two hours. Here they may last, and so must their records.
_CONNECTION_SECONDS = 100 * 365 * 24 * 3600
# How long a thread keeps the interpreter. A commit has some twenty statements and waits at each:
# with Python's 5 ms, it would take 100 ms. Below 0.3 ms, switching threads costs too much.
_SWITCH_SECONDS = 0.0003
# New objects before the collector runs: hundreds of requests hold thousands of objects in use.
_COLLECT_AFTER = 50_000
# An ended WebSocket is a cycle of objects, some 30 KB, which the collector would notice too late.
_COLLECT_AFTER_ENDED = 500
# Each thread would get a heap of its own, and keep what it has freed.
_MOST_HEAPS = 2
_M_ARENA_MAX = -8  # in glibc's malloc.h
_TOO_MANY = Refused(Prefix.RATE_LIMITED, "too many messages from this address")


class Server:
    """Starts and stops everything that runs on one machine, in order."""

    def __init__(self, settings: Settings) -> None:
        self._folder = hold_folder(Path(settings.data))
        # Bound first, because the agent's published identity names the port.
        self._listener = _bind(settings.host, settings.port)
        self.settings = replace(
            with_identity(settings),
            port=self._listener.getsockname()[1],
            connection_seconds=_CONNECTION_SECONDS,
        )

    async def start(self) -> None:
        settings = self.settings
        sys.setswitchinterval(_SWITCH_SECONDS)
        _limit_heaps()
        _spare_the_collector()
        self._stopping = False
        self._ended = 0
        self._mailbox = LoopMailbox(asyncio.get_running_loop())
        self._workers = Workers(max(1, settings.workers), self._mailbox, spare=_SPARE_WORKERS)
        self._sync_workers = Workers(_SYNC_WORKERS, self._mailbox)
        self._engine = SqliteEngine(Path(settings.data))
        readers = number_of_readers(settings.readers)
        self._readers = LocalReaderProcesses(
            self._engine.path,
            readers,
            settings.light_scan,
            # A message that is answered in the loop's thread must not wait.
            self._mailbox.is_inside,
        )
        self._scheduler = WriteScheduler(self._mailbox)
        self._engine.park_in(self._scheduler)
        self._meter = LocalMeter()
        backlog = Backlog(settings.max_send_buffer, settings.max_send_buffers)
        self._connections = LocalConnections(
            self._mailbox, backlog, self._scheduler, self._meter, settings.workers,
            self._workers.step_aside,
        )  # fmt: skip
        rules = HostRules(settings.allow_private_hosts)
        self._outbound = LocalOutbound(self._scheduler, self._mailbox, rules)
        self._relays = SocketRelays(rules)
        self._wakes = LocalWakes(self._scheduler, self._mailbox)
        self._search = FtsSearch(Path(settings.data)) if settings.search else None
        figures = PumpFigures()
        agent = Agent(
            settings, self._engine, self._connections, self._outbound, self._meter,
            self._relays, search=self._search or NoSearch(), wakes=self._wakes,
            sleep=self._outbound.sleep,
            slow_lane=LocalSlowLane(self._workers), numbering=Numbering(self._engine),
            recall=self._engine.recall(settings.read_cache),
            reader_processes=self._readers if readers else None,
            in_order=True, alone=True, figures=figures,
            stream_end=self._engine.found_end,
        )  # fmt: skip
        runtime.install(agent)
        self._agent = agent
        self._limits = ConnectionLimits(settings)
        self._limits.is_blocked = lambda address: is_blocked(agent, address)
        self._meter.watch(agent, lambda: len(self._limits))
        ensure_local_peer(agent.ledger, settings)
        publish_identity(agent)
        self._routes = {message.key: load_handler(message.function) for message in MESSAGES}
        self._streams = EventStreams(agent, self._workers, self._mailbox)
        self._web = WebRoutes(
            settings, self._scheduler, self._workers, self._meter, self._streams.serve,
            lambda: self._pump.catch_up("sequencer", _NUMBERING_SECONDS), self._streams.end,
        )  # fmt: skip
        self._pump = StreamPump(
            self._engine,
            {
                **{stream: self._consumer(stream) for stream in STREAMS},
                **({SEARCH_STREAM: self._search.handle} if self._search else {}),
            },
            # In its own thread, a consumer that writes would wait for the interpreter at every row.
            {
                stream.function: self._scheduler.call
                for stream in STREAMS
                if stream.work is Work.WRITE
            },
            # Whoever published has the answer before consumers take the interpreter.
            lambda changed: self._scheduler.tell_after_answers(
                partial(asyncio.get_running_loop().call_soon, changed)
            ),
        )
        figures.pump = self._pump
        self._pump.start()
        if self._search:
            self._search.start(agent)
        await self._listen()
        self._wakes.start(load_handler("deliveries"))
        self._workers.submit(lambda: wake_all(agent), lambda _woken: None)
        self._feeds = None
        if is_reading(agent):
            then = partial(rebroadcast, agent) if is_rebroadcasting(agent) else None
            self._feeds = FollowedRelays(agent, caching(agent, self._scheduler.run_all, then))
            self._feeds.start()
        self._outbox = OutboxRunner(agent)
        self._outbox.start()
        self._chores = [
            asyncio.create_task(self._purge()),
            *(
                asyncio.create_task(self._repeat(schedule))
                for schedule in SCHEDULES
                if not schedule.in_cloud_only
            ),
        ]

    def _is_at_hand(self, route: str, body: str) -> bool:
        """Whether a message is answered from memory, or with a single read."""
        return route == Verb.CLOSE or (route == Verb.REQ and is_at_hand(self._agent, body))

    def _consumer(self, stream: Stream) -> Handler:
        handler = load_handler(stream.function)
        if stream.table is Table.CHANGES:
            return notifying(handler, self._streams.notify)
        return handler

    async def _listen(self) -> None:
        limits = self._limits
        # Without aiohttp's application: its router is not needed.
        general = HttpServer(self._request, self.settings, limits)
        self._runner = web.ServerRunner(
            general, handle_signals=False, shutdown_timeout=_STOP_SECONDS
        )
        await self._runner.setup()
        self._packets = PacketServer(
            self._web.packet_handler,
            self._scheduler,
            limits,
            self.settings.request_seconds,
            general,
        )
        self._listening = await asyncio.get_running_loop().create_server(
            self._packets, sock=self._listener, backlog=_BACKLOG
        )

    async def stop(self) -> None:
        """Accept nothing new, finish what is being handled, and close the database."""
        self._stopping = True
        asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._outbound.give_up)
        self._streams.stop()
        if self._feeds is not None:
            await asyncio.to_thread(self._feeds.stop)
        self._relays.stop()
        self._wakes.stop()
        await asyncio.to_thread(self._outbox.stop)
        goodbyes = [socket.close() for socket in self._connections.all()]
        self._listening.close()
        await asyncio.gather(*goodbyes, self._packets.stop(_STOP_SECONDS), return_exceptions=True)
        await self._runner.cleanup()
        for chore in self._chores:
            chore.cancel()
        await asyncio.to_thread(self._workers.stop)
        await asyncio.to_thread(self._sync_workers.stop)
        await asyncio.to_thread(self._readers.stop)
        await asyncio.to_thread(self._pump.stop)
        await asyncio.to_thread(self._scheduler.stop)
        await self._outbound.close()
        if self._search:
            await asyncio.to_thread(self._search.close)
        await asyncio.to_thread(self._engine.close)
        runtime.install(None)
        self._folder.close()

    async def _repeat(self, schedule: Schedule) -> None:
        handler = load_handler(schedule.function)
        seconds = 60 * schedule.minutes
        if schedule.setting:
            seconds = getattr(self.settings, schedule.setting)
        if not schedule.at_start:
            await asyncio.sleep(seconds)
        while seconds:
            await self._workers.run(lambda: handler({}, None))
            await asyncio.sleep(seconds)

    async def _purge(self) -> None:
        """Delete expired items, as DynamoDB does by itself."""
        while True:
            await asyncio.sleep(_PURGE_SECONDS)
            while await self._workers.run(self._engine.purge_expired):
                pass  # each call deletes a part
            SEALED.forget_idle(int(time.time()))

    async def _request(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" or "Upgrade" not in request.headers:
            return await self._web.answer(request)
        socket = web.WebSocketResponse(
            protocols=(AETHER_SUBPROTOCOL,) if self.settings.aether else (),
            heartbeat=_PING_SECONDS,
            timeout=_GOODBYE_SECONDS,
            compress=False,  # like API Gateway; compressing costs more than verifying
            max_msg_size=2 * self.settings.max_message_length,
        )
        if _can_prepare(socket, request):
            return await self._websocket(request, socket)
        if request.headers["Upgrade"].strip().lower() == "websocket":
            return refusal(400, "expected a WebSocket handshake as in RFC 6455")
        return await self._web.answer(request)

    async def _websocket(
        self, request: web.BaseRequest, response: web.WebSocketResponse
    ) -> web.WebSocketResponse:
        if self._stopping:
            raise web.HTTPServiceUnavailable
        client = request[CLIENT]
        key = limit_key(client)
        by_proxy = client != peer_of(request.transport)
        if by_proxy and not self._limits.enter_by_proxy(key):
            raise web.HTTPServiceUnavailable
        try:
            return await self._socket(request, response, client)
        finally:
            if by_proxy:
                self._limits.leave_by_proxy(key)

    async def _socket(
        self, request: web.BaseRequest, response: web.WebSocketResponse, client: str
    ) -> web.WebSocketResponse:
        headers = _handshake_headers(request)
        context = SocketContext(client, own_name(request, self.settings), headers)
        socket = Socket(
            response, request.writer.drain, request.transport, context, self._routes,
            self._scheduler, self._workers, self._sync_workers, self._connections,
            self._is_at_hand,
        )  # fmt: skip
        socket.is_marked = self.settings.aether and _will_speak_aether(headers)
        await self._workers.run(
            lambda: self._routes["$connect"](context.event("CONNECT", "$connect"), None)
        )
        try:
            await response.prepare(request)
            await self._converse(response, socket, limit_key(client))
        finally:
            await self._workers.run(
                lambda: self._routes["$disconnect"](
                    context.event("DISCONNECT", "$disconnect"), None
                )
            )
            self._ended += 1
            if self._ended % _COLLECT_AFTER_ENDED == 0:
                gc.collect()
        return response

    async def _converse(self, response: web.WebSocketResponse, socket: Socket, key: str) -> None:
        self._connections.add(socket)
        if self._stopping:
            socket.close()
        writer = asyncio.create_task(socket.write())
        try:
            await self._read(response, socket, key)
        finally:
            await socket.finish()
            self._connections.remove(socket)
            writer.cancel()

    async def _read(self, response: web.WebSocketResponse, socket: Socket, key: str) -> None:
        most = self.settings.max_message_length
        burst = self.settings.address_message_burst
        async for message in response:
            frame: str | bytes = message.data
            if not self._takes(socket, message):
                # Nostr has no binary frames, and API Gateway takes none.
                await response.close(code=WSCloseCode.UNSUPPORTED_DATA)
            elif is_too_long(most, frame):
                await _send(response, self._refuse(socket, frame, TooLong(most)))
                await response.close(code=WSCloseCode.MESSAGE_TOO_BIG)
            elif (excess := self._limits.messages.count(key)) > burst:
                await _send(response, self._refuse(socket, frame, _TOO_MANY))
                if excess > 2 * burst:  # the client was warned often enough
                    socket.close(WSCloseCode.POLICY_VIOLATION)
            else:
                await socket.take(frame)

    def _refuse(self, socket: Socket, frame: str | bytes, refused: Refused) -> str | bytes:
        return refuse(self._agent, frame, refused, is_marked=socket.is_marked)

    def _takes(self, socket: Socket, message: WSMessage) -> bool:
        if message.type is not WSMsgType.BINARY:
            return message.type is WSMsgType.TEXT
        if not self.settings.aether:
            return False
        return socket.is_marked or socket.speaks_aether or aether_type(message.data) is not None


def _handshake_headers(request: web.BaseRequest) -> dict[str, str]:
    """The headers that say which protocol a client will speak, as CloudFront passes them on."""
    headers = {PATH_HEADER: request.path}
    if SUBPROTOCOL_HEADER in request.headers:
        headers[SUBPROTOCOL_HEADER] = request.headers[SUBPROTOCOL_HEADER]
    return headers


def _will_speak_aether(headers: dict[str, str]) -> bool:
    connect = {"headers": headers}
    return opens_aether(connect) or offers_aether(connect)


def _can_prepare(socket: web.WebSocketResponse, request: web.BaseRequest) -> bool:
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # a header of the handshake has octets beyond ASCII
        return False


async def _send(response: web.WebSocketResponse, frame: str | bytes) -> None:
    await (response.send_str(frame) if isinstance(frame, str) else response.send_bytes(frame))


def _spare_the_collector() -> None:
    """Keep the garbage collector from scanning the loaded modules again and again. Nearly all
    objects of a request are freed with their last reference."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)


def _limit_heaps() -> None:
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _MOST_HEAPS)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "the port is taken: choose another by FARTHING_PORT" if taken else error
        raise CannotStart(f"cannot listen on {host}:{port}: {why}") from error


async def serve(settings: Settings) -> None:
    """Run until SIGINT or SIGTERM."""
    configure_logs(settings)
    server = Server(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    print(_welcome(server.settings), flush=True)
    if settings.listens_everywhere and not settings.relay_url:
        log.warning(
            "the published URL %s can be reached from this machine only: set FARTHING_RELAY_URL",
            server.settings.http_url,
        )
    await stop.wait()
    with suppress(OSError):  # nobody may be reading any more
        print("stopping", flush=True)
    await server.stop()


def _welcome(settings: Settings) -> str:
    rows = [
        ("relay", f"ws://{settings.authority}"),
        ("information", f"http://{settings.authority}"),
        ("ILP", f"http://{settings.authority}/ilp"),
        ("public key", settings.pubkey),
        ("npub", encode(Npub(settings.pubkey))),
        ("ILP address", settings.own_ilp_address),
        ("data", os.path.abspath(settings.data)),
    ]
    return "\n".join(["Farthing is up.", *(f"  {name:<12} {value}" for name, value in rows)])
