#!/usr/bin/env python3
"""Writes block_key_vectors.json: block keys from the definition in common/kv/block_key.h, computed with hashlib."""
import hashlib
import json
import pathlib
import struct


def root(layout, salt):
    return hashlib.sha256(b"millrace-block-root\0" + layout.encode() + b"\0" + salt.encode()).digest()[:16]


def keys(parent, ids):
    out = []
    for start in range(0, len(ids) - 63, 64):
        parent = hashlib.sha256(parent + struct.pack("<64i", *ids[start:start + 64])).digest()[:16]
        out.append(parent.hex())
    return out


cases = []
for layout, salt, ids in [
    ("", "", []),
    ("d" * 64, "", list(range(64))),
    ("d" * 64, "tenant-a", list(range(64))),
    ("0123456789abcdef" * 4, "", [7 * i % 49152 for i in range(200)]),
    ("0123456789abcdef" * 4, "salt", [2147483647, -1] * 64),
]:
    r = root(layout, salt)
    cases.append({"layout_digest": layout, "tenant_salt": salt, "ids": ids, "root": r.hex(), "keys": keys(r, ids)})
path = pathlib.Path(__file__).with_name("block_key_vectors.json")
path.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
