"""Reads a trace that `tpsim run --trace-out` wrote as Perfetto's trace_processor does: packets in the order of their
times, slices that nest on their tracks. Field numbers are those of perfetto_trace.proto; no package is needed.
"""

import gzip
import struct


def fields(data):
    """Number, value and wire type of each field of a message; bytes of what is length-delimited."""
    at, end = 0, len(data)

    def varint():
        nonlocal at
        shift = value = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < end:
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 1:
            yield tag >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        elif tag & 7 == 2:
            length = varint()
            yield tag >> 3, data[at:at + length]
            at += length
        else:
            raise ValueError(f"wire type {tag & 7}")
    if at != end:
        raise ValueError("cut off")


def message(data):
    result = {}
    for number, value in fields(data):
        result.setdefault(number, []).append(value)
    return result


PACKET, TIMESTAMP, SEQUENCE, EVENT, INTERNED, TRACK = 1, 8, 10, 11, 12, 60
ANNOTATIONS, TYPE, NAME_IID, TRACK_UUID, NAME, COUNT, NUMBER = 4, 9, 10, 11, 23, 30, 44
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


class Slice:
    def __init__(self, track, uuid, name, begin, depth, arguments):
        self.track, self.uuid, self.name, self.begin, self.depth = track, uuid, name, begin, depth
        self.end, self.arguments, self.children = None, arguments, []


class PerfettoFile:
    """slices: those of a track's name, in the order in which they begin; counters: (time, value) of a track's name;
    where there are several processes, of "process: track". What takes no time is a slice that ends where it begins.
    Nanoseconds. Raises ValueError for what is no trace.
    """

    def __init__(self, path):
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            data = file.read()
        self.slices, self.counters, self.process = {}, {}, None  # the last process
        tracks, events, processes, parents = {}, [], {}, {}
        names, keys, words = {}, {}, {}
        for number, packet in fields(data):
            if number != PACKET:
                raise ValueError(f"field {number} of a trace")
            packet = message(packet)
            for interned in packet.get(INTERNED, []):
                for kind, entry in fields(interned):
                    entry = message(entry)
                    {1: {}, 2: names, 3: keys, 29: words}[kind][entry[1][0]] = entry[2][0].decode()
            for track in packet.get(TRACK, []):
                track = message(track)
                tracks[track[1][0]] = track.get(2, [b""])[0].decode()
                if 3 in track:
                    self.process = processes[track[1][0]] = message(track[3][0])[6][0].decode()
                elif track[5][0] not in tracks:
                    raise ValueError("a track without its parent")
                else:
                    parents[track[1][0]] = track[5][0]
            for event in packet.get(EVENT, []):
                event = message(event)
                # Ids are resolved where they stand: what an event names was said before it.
                if event[TYPE][0] in (BEGIN, INSTANT):
                    name = event[NAME][0].decode() if NAME in event else names[event[NAME_IID][0]]
                    arguments = {}
                    for annotation in event.get(ANNOTATIONS, []):
                        annotation = message(annotation)
                        value = annotation.get(3, annotation.get(5))
                        arguments[keys[annotation[1][0]]] = value[0] if value else words[annotation[17][0]]
                    event["name"], event["arguments"] = name, arguments
                events.append((packet[TIMESTAMP][0], event))
        self.processes = list(processes.values())
        if len(processes) > 1:
            tracks.update({uuid: f"{processes[parent]}: {tracks[uuid]}" for uuid, parent in parents.items()})
        events.sort(key=lambda e: e[0])  # stable
        open_slices = {}
        for time, event in events:
            uuid = event[TRACK_UUID][0]
            track, stack = tracks[uuid], open_slices.setdefault(uuid, [])
            if event[TYPE][0] in (BEGIN, INSTANT):
                slice = Slice(track, uuid, event["name"], time, len(stack), event["arguments"])
                if stack:
                    stack[-1].children.append(slice)
                if event[TYPE][0] == BEGIN:
                    stack.append(slice)
                else:
                    slice.end = time
                self.slices.setdefault(track, []).append(slice)
            elif event[TYPE][0] == END:
                if not stack:
                    raise ValueError(f"an end of nothing on {track} at {time}")
                stack.pop().end = time
            else:
                self.counters.setdefault(track, []).append((time, event.get(COUNT, event.get(NUMBER))[0]))
        for uuid, stack in open_slices.items():
            if stack:
                raise ValueError(f"{stack[0].name} on {tracks[uuid]} does not end")

    def outer(self, track):
        return [slice for slice in self.slices.get(track, []) if slice.depth == 0]
