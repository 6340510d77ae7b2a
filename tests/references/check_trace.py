#!/usr/bin/env python3
"""Checks a trace of `tpsim run --trace-out` with Perfetto's own messages.

Usage: check_trace.py TRACE      (.gz too)

Needs the PyPI package perfetto (0.59.1 was used). Every packet is parsed as Perfetto's TracePacket; fields that it does
not know are errors, so are interned ids that no packet of the sequence has named since its state was cleared, events of
unknown tracks, counters on tracks that are none, ends without begins and slices that never end, in the order in which
trace_processor sorts packets: by time, then as in the file. Prints what the trace holds.
"""

import collections
import gzip
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


def unknown(message, path=""):
    for field in UnknownFieldSet(message):
        sys.exit(f"{path}: Perfetto knows no field {field.field_number}")
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for item in value if hasattr(value, "__len__") and not hasattr(value, "DESCRIPTOR") else [value]:
            unknown(item, f"{path}.{descriptor.name}")


def main(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        trace = Trace.FromString(file.read())
    tracks, counters, names, interned, events = {}, set(), collections.Counter(), {}, []
    for index, packet in enumerate(trace.packet):
        unknown(packet, f"packet {index}")
        if not packet.trusted_packet_sequence_id:
            sys.exit(f"packet {index}: is of no sequence")
        if packet.sequence_flags & 1:
            interned = {"event_names": {}, "event_categories": {}, "debug_annotation_names": {},
                        "debug_annotation_string_values": {}}
        for kind, known in interned.items():
            for entry in getattr(packet.interned_data, kind):
                if entry.iid in known or entry.iid == 0:
                    sys.exit(f"packet {index}: names {kind} {entry.iid} again")
                known[entry.iid] = entry
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.parent_uuid and track.parent_uuid not in tracks or track.uuid in tracks:
                sys.exit(f"packet {index}: track {track.uuid} has no parent, or is there already")
            tracks[track.uuid] = track
            if track.HasField("counter"):
                counters.add(track.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        wanted = [("event_names", event.name_iid)] if event.name_iid else []
        wanted += [("event_categories", iid) for iid in event.category_iids]
        for annotation in event.debug_annotations:
            wanted.append(("debug_annotation_names", annotation.name_iid))
            if annotation.HasField("string_value_iid"):
                wanted.append(("debug_annotation_string_values", annotation.string_value_iid))
        for kind, iid in wanted:
            if not packet.sequence_flags & 2 or iid not in interned[kind]:
                sys.exit(f"packet {index}: {kind} {iid} is nobody's")
        if event.track_uuid not in tracks or (event.type == TrackEvent.TYPE_COUNTER) != (event.track_uuid in counters):
            sys.exit(f"packet {index}: is of no track of its kind")
        events.append((packet.timestamp, event.type, event.track_uuid))
        if event.type == TrackEvent.TYPE_SLICE_BEGIN and event.name_iid:
            names[interned["event_names"][event.name_iid].name] += 1
    events.sort(key=lambda e: e[0])
    open_slices, deepest = collections.Counter(), collections.Counter()
    for time, kind, track in events:
        if kind == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[track] += 1
            deepest[track] = max(deepest[track], open_slices[track])
        elif kind == TrackEvent.TYPE_SLICE_END:
            open_slices[track] -= 1
            if open_slices[track] < 0:
                sys.exit(f"track {tracks[track].name}: an end of nothing at {time}")
    if any(open_slices.values()):
        sys.exit("a slice does not end")
    print(f"{len(trace.packet)} packets, {len(tracks)} tracks, {len(events)} events, "
          f"{(events[-1][0] - events[0][0]) / 1e9:.3f} s, at most {max(deepest.values(), default=0)} deep")
    print(dict(names))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
