// A trace as trace_processor reads it: packets in the order of their times, slices by track.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "proto/perfetto.pb.h"

namespace tpsim::launch {

struct ReadTrace {
  struct Slice {
    std::string track, category, name;
    std::uint64_t uuid = 0, begin = 0, end = 0;
    std::size_t depth = 0;
    std::map<std::string, std::string> arguments;
    bool instant = false;
  };
  struct Value {
    std::uint64_t time = 0;
    double value = 0;
  };
  std::vector<Slice> slices;  // in the order in which they begin
  std::map<std::string, std::vector<Value>> counters;
  // Of several processes, "process: track".
  std::map<std::uint64_t, std::string> tracks;
  std::string process;  // the last

  std::vector<Slice> of(const std::string& track) const {
    std::vector<Slice> result;
    std::copy_if(slices.begin(), slices.end(), std::back_inserter(result),
                 [&](const Slice& slice) { return slice.track == track; });
    return result;
  }
  std::vector<std::string> names(const std::string& track) const {
    std::vector<std::string> result;
    for (const Slice& slice : of(track)) result.push_back(slice.name);
    return result;
  }
};

// Fails the test where the trace is not one: ids that are nobody's, slices that cross, ends of nothing.
inline ReadTrace read_trace(const std::string& bytes) {
  using proto::perfetto::TrackEvent;
  proto::perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  ReadTrace result;
  std::map<std::uint64_t, std::string> names, categories, keys, words;
  std::map<std::uint64_t, std::uint64_t> parents;
  struct Event {
    std::uint64_t time;
    const TrackEvent* event;
  };
  std::vector<Event> events;
  bool begun = false;
  std::map<std::uint64_t, std::string> processes;
  for (const auto& packet : trace.packet()) {
    EXPECT_NE(packet.trusted_packet_sequence_id(), 0U);
    using proto::perfetto::TracePacket;
    if (packet.sequence_flags() & TracePacket::SEQ_INCREMENTAL_STATE_CLEARED) begun = true;
    EXPECT_TRUE(begun || !(packet.sequence_flags() & TracePacket::SEQ_NEEDS_INCREMENTAL_STATE));
    for (const auto& entry : packet.interned_data().event_names()) names[entry.iid()] = entry.name();
    for (const auto& entry : packet.interned_data().event_categories())
      categories[entry.iid()] = entry.name();
    for (const auto& entry : packet.interned_data().debug_annotation_names())
      keys[entry.iid()] = entry.name();
    for (const auto& entry : packet.interned_data().debug_annotation_string_values())
      words[entry.iid()] = entry.str();
    if (packet.has_track_descriptor()) {
      const auto& track = packet.track_descriptor();
      EXPECT_FALSE(result.tracks.contains(track.uuid()));
      result.tracks[track.uuid()] = track.name();
      if (track.has_process()) {
        result.process = processes[track.uuid()] = track.process().process_name();
      } else {
        EXPECT_TRUE(result.tracks.contains(track.parent_uuid()));
        parents[track.uuid()] = track.parent_uuid();
      }
    }
    if (!packet.has_track_event()) continue;
    const TrackEvent& event = packet.track_event();
    EXPECT_TRUE(result.tracks.contains(event.track_uuid())) << "an event before its track";
    if (event.type() == TrackEvent::TYPE_SLICE_BEGIN || event.type() == TrackEvent::TYPE_INSTANT) {
      // What it names has been said before.
      EXPECT_TRUE(event.has_name() || names.contains(event.name_iid()));
      for (const auto iid : event.category_iids()) EXPECT_TRUE(categories.contains(iid));
      for (const auto& argument : event.debug_annotations()) {
        EXPECT_TRUE(keys.contains(argument.name_iid()));
        EXPECT_TRUE(!argument.has_string_value_iid() || words.contains(argument.string_value_iid()));
      }
    }
    events.push_back({packet.timestamp(), &event});
  }
  if (processes.size() > 1)
    for (const auto& [track, process] : parents)
      result.tracks[track] = processes[process] + ": " + result.tracks[track];
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  std::map<std::uint64_t, std::vector<std::size_t>> open;
  for (const auto& [time, event] : events) {
    const std::uint64_t uuid = event->track_uuid();
    switch (event->type()) {
      case TrackEvent::TYPE_SLICE_BEGIN:
      case TrackEvent::TYPE_INSTANT: {
        ReadTrace::Slice slice;
        slice.instant = event->type() == TrackEvent::TYPE_INSTANT;
        slice.end = time;
        slice.uuid = uuid;
        slice.track = result.tracks[uuid];
        slice.name = event->has_name() ? event->name() : names[event->name_iid()];
        slice.category = categories[event->category_iids(0)];
        slice.begin = time;
        slice.depth = open[uuid].size();
        for (const auto& argument : event->debug_annotations())
          slice.arguments[keys[argument.name_iid()]] =
              argument.has_uint_value()     ? std::to_string(argument.uint_value())
              : argument.has_double_value() ? std::to_string(argument.double_value())
                                            : words[argument.string_value_iid()];
        if (!slice.instant) open[uuid].push_back(result.slices.size());
        result.slices.push_back(slice);
        break;
      }
      case TrackEvent::TYPE_SLICE_END:
        if (open[uuid].empty()) {
          ADD_FAILURE() << "an end of nothing on " << result.tracks[uuid] << " at " << time;
          break;
        }
        result.slices[open[uuid].back()].end = time;
        open[uuid].pop_back();
        break;
      default:
        result.counters[result.tracks[uuid]].push_back(
            {time, event->has_counter_value() ? static_cast<double>(event->counter_value())
                                              : event->double_counter_value()});
    }
  }
  for (const auto& [uuid, slices] : open)
    EXPECT_TRUE(slices.empty()) << result.tracks[uuid] << " does not end";
  return result;
}

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tpsim::launch
