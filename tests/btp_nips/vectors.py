"""The two envelopes that the specification gives byte by byte."""

RELAY_SECRET = b"\x01" * 32
CLIENT_SECRET = b"\x02" * 32
CLIENT = "4d4b6cd1361032ca9bd2aeb9d900aa4d45d9ead80ac9423374c451a7254d0766"

REQ_BODY = (
    '{"payment":{"amount":"1460","currency":"USD","purpose":"subscription","model":"one_time"},'
    '"nostr":{"type":"REQ","subscriptionId":"s1",'
    f'"filters":[{{"kinds":[1],"authors":["{CLIENT}"],"limit":2}}]}},'
    f'"metadata":{{"timestamp":1733414400,"ttl":3600,"sender":"{CLIENT}","delivery":"pull"}}}}'
)
REQ = bytes.fromhex("01020187") + REQ_BODY.encode()
REQ_SHA256 = "412b5b2b17eba2070de6fae826ed12ab864d0a8888cb9b59f7c1d1887dde6314"
REQ_FULFILLMENT = "58b127e5bc9d23e44dbc6391c531aba43b511b9efec05ea195ef1242359b214e"
REQ_CONDITION = "bcc1d55d3d057f6da88c89d7facf89bd83bd431c42bd8683aa4992a186dec182"

CLOSE_BODY = (
    '{"payment":{"amount":"0","currency":"USD","purpose":"relay_fee"},'
    '"nostr":{"type":"CLOSE","subscriptionId":"s1"},'
    f'"metadata":{{"timestamp":1733414401,"sender":"{CLIENT}"}}}}'
)
CLOSE = bytes.fromhex("010300e0") + CLOSE_BODY.encode()
CLOSE_FULFILLMENT = "8d160b456ec13747b5bc1e2f0759d441ad676baff4f1138831265e89e7ceb736"
