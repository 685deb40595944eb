#!/usr/bin/env python3
"""Reference-store formats in plain Python: golden vectors and small sample stores for tests.

  reference_format.py vectors          print golden-vectors.json
  reference_format.py store DIR [v1|v2|mixed] [--trailer]
                                       write DIR/index.sqlite and DIR/objects/*.data as the
                                       reference system would have left them

The sample store holds two conversations (prompt and response checkpoints) for 2 ranks and three
storage groups (attention with a 4096-token span, recurrent, auxiliary), with 64 KiB pages whose
bytes follow from their key (page_bytes()), so an importer can check every restored byte without
another source. Standard library only. The formats: docs/format/identity.md.
"""
import hashlib
import json
import os
import sqlite3
import struct
import sys

CHUNK = 4096
PAGE_BYTES = 65536
SPAN = 4096
PREFIX = "recurrent-checkpoint-"  # inferred literal: match stores by the hash part, not by this


def sha(data):
    return hashlib.sha256(data).digest()


def canonical(obj):
    return json.dumps(obj, sort_keys=True, separators=(",", ":")).encode()


def namespace(identity, salt=""):
    doc = {"schema_version": 1, "identity": identity, "cache_salt": salt}
    return "recurrent-sha256-v1:" + sha(canonical(doc)).hex()


def pack(tokens):
    return struct.pack("<%dI" % len(tokens), *tokens)


def chain_start():
    return sha(b"lmcache-recurrent-token-roots-v1\0" + struct.pack("<I", CHUNK))


def root(tokens, n):
    """(start, digest before the chunk, tail tokens) of the boundary n > 0."""
    start = (n - 1) // CHUNK * CHUNK
    digest = chain_start()
    for at in range(0, start, CHUNK):
        digest = sha(digest + pack(tokens[at : at + CHUNK]))
    return start, digest, tokens[start:n]


def digest(tokens, n):
    _, before, tail = root(tokens, n)
    return sha(before + pack(tail))


def page_key(ns, tokens, n, discriminator):
    text = json.dumps([ns, n, discriminator], separators=(",", ":"), ensure_ascii=False)
    return sha(b"lmcache-recurrent-page-v1\0" + digest(tokens, n) + b"\0" + text.encode()).hex()


def generation(ns, tokens, n, payload):
    start, before, tail = root(tokens, n)
    doc = {"namespace": ns, "start_tokens": start, "prefix_hash": before.hex(), "tail_tokens": tail}
    prefix = sha(b"lmcache-recurrent-content-v1\0manifest\0" + canonical(doc))
    return "recurrent-content-v1:" + sha(
        b"lmcache-recurrent-generation-v1\0" + prefix + b"\0" + payload
    ).hex()


def group_namespace(ns, rank, group, name):
    return sha(json.dumps([ns, rank, group, name]).encode()).hex()


def object_name(version, ns, rank, group, name, key_hex):
    model = "%sv%d-%s" % (PREFIX, version, group_namespace(ns, rank, group, name))
    return "%s@0x%08x@%x@%s.data" % (model, rank, group, key_hex)


def tail_hash(tokens):
    value = 0
    for token in tokens:
        value = (value * 1000003 + token + 1) % ((1 << 61) - 1)
    return value


def page_bytes(name):
    """PAGE_BYTES that follow from an object's file name."""
    out = bytearray()
    counter = 0
    while len(out) < PAGE_BYTES:
        out += sha(name.encode() + struct.pack("<I", counter))
        counter += 1
    return bytes(out[:PAGE_BYTES])


def crc32c(data):
    table = crc32c.table
    if not table:
        for byte in range(256):
            value = byte
            for _ in range(8):
                value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
            table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


crc32c.table = []

IDENTITY = {
    "target_revision": "a" * 40,
    "draft_revision": "",
    "source_revision": "b" * 40,
    "layout": {"page_bytes": 6893568, "schema_version": 1},
    "parallel": {"cp_interleave": 1, "dcp": 4, "tp": 4},
}


def groups_for(ns, tokens, n, kind, schema):
    pages = (n + SPAN - 1) // SPAN
    rows = [
        ("engine-kv-group:0", [(p, min((p + 1) * SPAN, n), "attention:0") for p in range(pages)]),
        ("engine-kv-group:1", [(pages - 1, n, "recurrent:1")]),
        ("target-draft-auxiliary", [(0, n, "auxiliary:%d:%s" % (n - 1, kind))]),
    ]
    out = []
    for name, items in rows:
        row = {"name": name, "page_bytes": PAGE_BYTES, "positions": [p for p, _, _ in items]}
        if schema == 2:
            row["content_keys"] = [page_key(ns, tokens, end, d) for _, end, d in items]
        out.append(row)
    return out


def write_store(folder, flavour, trailer):
    objects = os.path.join(folder, "objects")
    os.makedirs(objects, exist_ok=True)
    db = sqlite3.connect(os.path.join(folder, "index.sqlite"))
    db.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA user_version=1;"
        "CREATE TABLE checkpoints (namespace TEXT NOT NULL, start_tokens INTEGER NOT NULL,"
        " prefix_hash BLOB NOT NULL, tail BLOB NOT NULL, num_tokens INTEGER NOT NULL,"
        " generation TEXT UNIQUE NOT NULL, world_size INTEGER NOT NULL, payload BLOB NOT NULL,"
        " access_order INTEGER NOT NULL, PRIMARY KEY(namespace,start_tokens,prefix_hash,tail));"
        "CREATE TABLE checkpoint_tails (generation TEXT PRIMARY KEY, namespace TEXT NOT NULL,"
        " start_tokens INTEGER NOT NULL, prefix_hash BLOB NOT NULL, tail_hash INTEGER NOT NULL);"
    )
    layout = {"page_bytes": PAGE_BYTES, "schema_version": 1}
    ns = namespace(dict(IDENTITY, layout=layout))
    order = 0
    for talk in range(2):
        tokens = [(talk * 7919 + i * 31) % 151936 for i in range(9000 + 1000 * talk)]
        for step, (n, kind) in enumerate([(5000, "prompt"), (5200, "response"), (9000, "prompt")]):
            schema = {"v1": 1, "v2": 2}.get(flavour, 1 + (talk + step) % 2)
            groups = groups_for(ns, tokens, n, kind, schema)
            payload = canonical(
                {
                    "schema_version": schema,
                    "worker_layout": layout,
                    "page_groups": groups,
                    "draft_prefix_len": n - 1,
                    "kind": kind,
                }
            )
            gen = (
                generation(ns, tokens, n, payload)
                if schema == 2
                else hashlib.md5(b"%d-%d" % (talk, n)).hexdigest()
            )
            start, before, tail = root(tokens, n)
            order += 1
            db.execute(
                "INSERT INTO checkpoints VALUES (?,?,?,?,?,?,?,?,?)",
                (ns, start, before, json.dumps(tail).encode(), n, gen, 2, payload, order),
            )
            db.execute(
                "INSERT INTO checkpoint_tails VALUES (?,?,?,?,?)",
                (gen, ns, start, before, tail_hash(tail)),
            )
            for rank in range(2):
                for index, row in enumerate(groups):
                    for at, position in enumerate(row["positions"]):
                        if schema == 2:
                            key, version = row["content_keys"][at], 3
                        else:
                            doc = json.dumps([gen, row["name"], position]).encode()
                            key, version = sha(doc).hex(), 2
                        name = object_name(version, ns, rank, index, row["name"], key)
                        data = page_bytes(name)
                        if trailer:
                            data += struct.pack("<IIQ", 0x31434D4C, crc32c(data), len(data))
                        with open(os.path.join(objects, name), "wb") as out:
                            out.write(data)
    db.commit()
    db.close()
    print("%s: %d checkpoints, %d objects" % (folder, order, len(os.listdir(objects))))


def vectors():
    ns = namespace(IDENTITY)
    tokens = list(range(1, 9001))
    payload = canonical(
        {
            "schema_version": 2,
            "worker_layout": IDENTITY["layout"],
            "page_groups": [
                {
                    "name": "engine-kv-group:0",
                    "page_bytes": 6893568,
                    "positions": [0, 1, 2],
                    "content_keys": [page_key(ns, tokens, n, "attention:0") for n in (4096, 8192, 9000)],
                },
                {
                    "name": "engine-kv-group:1",
                    "page_bytes": 6893568,
                    "positions": [2],
                    "content_keys": [page_key(ns, tokens, 9000, "recurrent:1")],
                },
                {
                    "name": "target-draft-auxiliary",
                    "page_bytes": 6893568,
                    "positions": [0],
                    "content_keys": [page_key(ns, tokens, 9000, "auxiliary:8999:prompt")],
                },
            ],
            "draft_prefix_len": 8999,
            "kind": "prompt",
        }
    )
    lengths = [1, 2, 4095, 4096, 4097, 8191, 8192, 8193, 8999, 9000]
    keys = [(4096, "attention:0"), (8192, "attention:0"), (9000, "attention:0"), (9000, "recurrent:1"),
            (9000, "auxiliary:8999:prompt"), (9000, "auxiliary:8999:response")]
    salted = namespace(IDENTITY, "tenant-\u00fc/1")
    doc = {
        "identity": IDENTITY,
        "tokens": "1, 2, ... 9000",
        "chunk_tokens": CHUNK,
        "namespace": ns,
        "namespace_with_salt": {"cache_salt": "tenant-\u00fc/1", "namespace": salted},
        "chain_start": chain_start().hex(),
        "token_digest": {str(n): digest(tokens, n).hex() for n in lengths},
        "page_key": [{"tokens": n, "discriminator": d, "key": page_key(ns, tokens, n, d)} for n, d in keys],
        "manifest_payload_bytes": len(payload),
        "manifest_payload_sha256": sha(payload).hex(),
        "generation": generation(ns, tokens, 9000, payload),
        "group_namespace": [
            {"rank": r, "group": g, "name": m, "sha256": group_namespace(ns, r, g, m)}
            for r in (0, 3) for g, m in ((0, "engine-kv-group:0"), (2, "target-draft-auxiliary"))
        ],
        "object_name": object_name(3, ns, 0, 0, "engine-kv-group:0", page_key(ns, tokens, 4096, "attention:0")),
        "tail_hash": {"5,7": tail_hash([5, 7])},
        "crc32c": {"123456789": "%08x" % crc32c(b"123456789")},
    }
    print(json.dumps(doc, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["vectors"]:
        vectors()
    elif sys.argv[1:2] == ["store"] and len(sys.argv) >= 3:
        rest = [a for a in sys.argv[3:] if a != "--trailer"]
        write_store(sys.argv[2], rest[0] if rest else "mixed", "--trailer" in sys.argv)
    else:
        sys.exit(__doc__)
