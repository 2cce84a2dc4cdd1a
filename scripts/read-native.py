#!/usr/bin/env python3
"""Reads a native stream (docs/spec/format.md) and writes the plain bytes of source 0 to standard output.

    read-native.py [FILE]        without FILE: from standard input

A second implementation, written from the document alone, with only the standard library. It shares
no code with the Rust one, so that errors in either show up. It performs all checks of section 10 of
the document, including the index records, and is slow. It supports codec none and no seal.

Exit status 0 only if the stream is complete and passes all checks; otherwise 1, and one line on
standard error. Do not use output that was written before an error.
"""

import struct
import sys

NONE = 2**64 - 1
HIGHEST = 2**63 - 1
MAX_FRAME = 16 << 20
MAX_INDEX = 1 << 20
MAX_END = 4096
MAX_SOURCES = 256


class Refused(Exception):
    """The stream breaks a rule of the format."""


def need(fact, message):
    if not fact:
        raise Refused(message)


def crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Input:
    """Input that reads exact byte counts and tracks the position in the stream."""

    def __init__(self, file):
        self.file = file
        self.position = 0

    def take(self, size, what):
        data = self.file.read(size)
        need(len(data) == size, f"the stream is truncated: it ends in {what} at {self.position}")
        self.position += size
        return data


class Record:
    """Fields of one index record, read from the front."""

    def __init__(self, body):
        self.body = body

    def byte(self):
        need(self.body, "index record: cut")
        first, self.body = self.body[0], self.body[1:]
        return first

    def varint(self):
        value = 0
        for at in range(10):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * at)
            if byte < 0x80:
                need(byte or at == 0, "index record: a number is not in its shortest form")
                need(value <= NONE, "index record: a number has more than 64 bits")
                return value
        raise Refused("index record: a number is too long")

    def step(self, base):
        zigzag = self.varint()
        value = base + ((zigzag >> 1) ^ -(zigzag & 1))
        need(0 <= value <= HIGHEST, "index record: a step leads out of range")
        return value

    def length(self):
        value = self.varint()
        need(value <= HIGHEST, "index record: a number is too high")
        return value

    def source(self):
        value = self.varint()
        need(value < MAX_SOURCES, "index record: source number is too high")
        return value

    def name(self):
        name, self.body = self.body, b""
        need(1 <= len(name) <= 511, "index record: name length")
        return name

    def end(self):
        need(not self.body, "index record: longer than its fields")


class Stream:
    def __init__(self, file, out):
        self.input = Input(file)
        self.out = out
        self.sources = {}  # number -> plain bytes so far
        self.data_frames = 0
        self.stored_bytes = 0
        self.index_frames = 0
        self.last_index = (NONE, 0)
        self.unlisted = []  # data frames since the last index frame
        self.files = set()

    def read(self):
        self.stream_header()
        while self.frame() != 3:
            pass
        self.trailer()
        need(not self.input.file.read(1), f"bytes follow the end at {self.input.position}")

    def stream_header(self):
        raw = self.input.take(128, "the stream header")
        need(raw[:8] == b"XBRSTR01", "not a native stream")
        need(crc32c(raw[:124]) == struct.unpack_from("<I", raw, 124)[0], "stream header: checksum")
        length, major, minor, flags, self.id, self.max_plain, seal = struct.unpack_from(
            "<HBBI16sIB", raw, 8
        )
        need(major == 1, f"format version {major}.{minor}")
        need(length == 128, "stream header: length")
        need(flags & ~1 == 0, "stream header: unknown flags")
        need(seal <= 1, "stream header: unknown seal algorithm")
        need(flags == seal, "stream header: sealed flag and algorithm do not fit")
        need(1 <= self.max_plain <= MAX_FRAME, "stream header: largest plain length of a frame")
        need(not seal, "the stream is sealed, this reader has no keys")
        need(not any(raw[40:72]), "stream header: key commitment without a seal")
        self.minor = minor
        if minor == 0:
            need(not any(raw[37:40]) and not any(raw[72:124]), "stream header: reserved bytes")

    def body_position(self):
        return self.input.position - 128

    def frame(self):
        position = self.body_position()
        here = f"frame at body position {position}"
        raw = self.input.take(32, f"the header of a {here}")
        magic, kind, codec, source, plain, stored, offset, payload_crc, header_crc = struct.unpack(
            "<4sBBHIIQII", raw
        )
        need(magic == b"XBRF", f"{here}: magic")
        covered = self.id + struct.pack("<Q", position) + raw[:28]
        need(crc32c(covered) == header_crc, f"{here}: header checksum")
        need(kind in (1, 2, 3), f"{here}: unknown kind {kind}")
        need(codec <= 4, f"{here}: unknown codec {codec}")
        low, high = {1: (1, self.max_plain), 2: (16, MAX_INDEX), 3: (48, MAX_END)}[kind]
        need(low <= plain <= high, f"{here}: plain length {plain}")
        if codec == 0:
            need(stored == plain, f"{here}: stored length {stored}")
        else:
            need(1 <= stored < plain, f"{here}: stored length {stored}")
        need(position + 32 + stored <= HIGHEST, f"{here}: ends too far out")
        if kind == 1:
            need(source < MAX_SOURCES, f"{here}: source number {source}")
            need(offset == self.sources.get(source, 0), f"{here}: plain offset {offset}")
            need(codec == 0, f"{here}: this reader does not have codec {codec}")
        else:
            need(codec == 0 and source == 0, f"{here}: codec or source number")
        if kind == 2:
            need(offset == self.last_index[0], f"{here}: position of the previous index frame")
        if kind == 3:
            need(offset == 0, f"{here}: offset")
        payload = self.input.take(stored, f"a {here}")
        need(crc32c(payload) == payload_crc, f"{here}: payload checksum")
        if kind == 1:
            self.sources[source] = offset + plain
            need(sum(self.sources.values()) <= HIGHEST, f"{here}: total of plain bytes")
            self.data_frames += 1
            self.stored_bytes += stored
            self.unlisted.append((source, position, offset, plain, stored))
            if source == 0:
                self.out.write(payload)
        elif kind == 2:
            self.index(payload, here)
            self.index_frames += 1
            self.last_index = (position, 32 + stored)
        else:
            need(not self.unlisted, f"{here}: data frames that no index frame lists")
            self.end(payload, here)
            self.end_position = position
        return kind

    def index(self, payload, here):
        number, before_len, count = struct.unpack_from("<QII", payload)
        need(number == self.index_frames, f"{here}: number of the index frame")
        need(before_len == self.last_index[1], f"{here}: length of the previous index frame")
        rest = Record(payload[16:])
        run_base, chunk_base, file_base = 0, 0, (None, 0)
        while rest.body:
            need(count, f"{here}: more records than stated")
            count -= 1
            tag, size = rest.byte(), rest.varint()
            need(size <= len(rest.body), f"{here}: a record is cut")
            record, rest.body = Record(rest.body[:size]), rest.body[size:]
            if tag == 1:
                file, source, _ = record.varint(), record.source(), record.name()
                need(file not in self.files, f"{here}: file id {file} twice")
                self.files.add(file)
            elif tag == 2:
                file, kind = self.known(record, here), record.byte()
                need(kind in b"PS", f"{here}: chunk of kind {kind}")
                position = record.step(chunk_base)
                chunk_base = position + record.length() + (payload_len := record.length())
                offset = record.step(file_base[1] if file_base[0] == file else 0)
                file_base = (file, offset + payload_len + record.length())
                need(max(chunk_base, file_base[1]) <= HIGHEST, f"{here}: chunk out of range")
            elif tag == 3:
                self.known(record, here)
                record.length()
            elif tag == 4:
                self.known(record, here)
                record.name()
            elif tag == 5:
                self.known(record, here)
            elif tag == 6:
                run_base = self.run(record, run_base, here)
            else:
                need(tag >= 0x80, f"{here}: unknown record tag {tag}")
                continue
            record.end()
        need(not count, f"{here}: fewer records than stated")
        need(not self.unlisted, f"{here}: does not list all data frames before it")

    def known(self, record, here):
        file = record.varint()
        need(file in self.files, f"{here}: record of a file {file} that has not begun")
        return file

    def run(self, record, base, here):
        """Compares a Frames record with the frames read so far."""
        source, position = record.source(), record.step(base)
        offset, count = record.length(), record.varint()
        need(1 <= count <= 4096, f"{here}: number of frames in a run")
        plain = 0
        for _ in range(count):
            entry = record.varint()
            if entry & 1:
                before, plain = plain, record.varint()
                need(plain != before, f"{here}: plain length repeated")
            stored = plain - (entry >> 1)
            need(1 <= stored <= plain <= MAX_FRAME, f"{here}: frame lengths in a run")
            need(self.unlisted, f"{here}: lists more data frames than there are")
            listed = (source, position, offset, plain, stored)
            need(self.unlisted.pop(0) == listed, f"{here}: lists a frame as {listed}")
            position += 32 + stored
            offset += plain
        return position

    def end(self, payload, here):
        *totals, count = struct.unpack_from("<QQQQQII", payload)
        plain_bytes = sum(self.sources.values())
        counted = [self.data_frames, plain_bytes, self.stored_bytes, self.index_frames]
        need(totals == counted + list(self.last_index), f"{here}: totals {totals}")
        need(1 <= count <= MAX_SOURCES, f"{here}: number of sources {count}")
        size = 48 + 8 * count
        exact = len(payload) == size or (self.minor > 0 and len(payload) > size)
        need(exact, f"{here}: length {len(payload)}")
        need(all(number < count for number in self.sources), f"{here}: too few sources")
        for number, length in enumerate(struct.unpack_from(f"<{count}Q", payload, 48)):
            need(length == self.sources.get(number, 0), f"{here}: length of source {number}")

    def trailer(self):
        body_len = self.body_position()
        raw = self.input.take(64, "the trailer")
        need(raw[:8] == b"XBREND01", "trailer: magic")
        need(crc32c(raw[:60]) == struct.unpack_from("<I", raw, 60)[0], "trailer: checksum")
        ident, *numbers = struct.unpack_from("<16sQQQQI", raw, 8)
        need(ident == self.id, "trailer: of another stream")
        counted = [self.input.position, body_len, self.end_position, *self.last_index]
        need(numbers == counted, f"trailer: {numbers}, counted {counted}")


def main():
    try:
        if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
            print(__doc__.strip(), file=sys.stderr)
            return 2
        file = open(sys.argv[1], "rb") if len(sys.argv) == 2 else sys.stdin.buffer
        with file:
            Stream(file, sys.stdout.buffer).read()
        sys.stdout.buffer.flush()
    except (Refused, OSError) as error:
        print(f"read-native.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
