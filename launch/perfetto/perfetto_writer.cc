#include "launch/perfetto/perfetto_writer.h"

#include <type_traits>

namespace tpsim::launch {
namespace {

using proto::perfetto::InternedData;
using proto::perfetto::TracePacket;
using proto::perfetto::TrackDescriptor;
using proto::perfetto::TrackEvent;

// All packets are of one writer: Perfetto resolves interned ids within a sequence.
constexpr std::uint32_t kSequence = 1;
constexpr int kChunkPackets = 4096;

template <class Id>
std::uint64_t raw(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace

PerfettoWriter::PerfettoWriter(OutputFile& file) : file_(file) {
  packet().set_sequence_flags(TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
}

TracePacket& PerfettoWriter::packet() {
  if (chunk_.packet_size() >= kChunkPackets) flush();
  TracePacket& packet = *chunk_.add_packet();
  packet.set_trusted_packet_sequence_id(kSequence);
  return packet;
}

void PerfettoWriter::flush() {
  buffer_.clear();
  chunk_.AppendToString(&buffer_);
  chunk_.Clear();
  bytes_ += buffer_.size();
  file_.write(buffer_);
}

TrackDescriptor& PerfettoWriter::describe(Track parent, std::string_view name, std::int32_t place) {
  TrackDescriptor& track = *packet().mutable_track_descriptor();
  track.set_uuid(++last_track_);
  if (parent == Track::kNone) return track;
  track.set_name(std::string(name));
  track.set_parent_uuid(raw(parent));
  track.set_sibling_order_rank(place);
  return track;
}

PerfettoWriter::Track PerfettoWriter::add_process(std::int32_t pid, std::string_view name) {
  TrackDescriptor& track = describe(Track::kNone, name, 0);
  track.mutable_process()->set_pid(pid);
  track.mutable_process()->set_process_name(std::string(name));
  track.set_child_ordering(TrackDescriptor::EXPLICIT);
  return Track{last_track_};
}

PerfettoWriter::Track PerfettoWriter::add_track(Track parent, std::string_view name, std::int32_t place) {
  describe(parent, name, place);
  return Track{last_track_};
}

PerfettoWriter::Track PerfettoWriter::add_counter(Track parent, std::string_view name, std::string_view unit,
                                                  std::int32_t place) {
  describe(parent, name, place).mutable_counter()->set_unit_name(std::string(unit));
  return Track{last_track_};
}

// `add` adds an entry to an InternedData.
template <class Entry>
PerfettoWriter::Name PerfettoWriter::intern(Names& names, std::string_view text,
                                            Entry* (InternedData::*add)()) {
  const auto found = names.find(text);
  if (found != names.end()) return Name{found->second};
  const std::uint64_t iid = names.size() + 1;
  names.emplace(text, iid);
  TracePacket& interning = packet();
  interning.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  Entry& entry = *(interning.mutable_interned_data()->*add)();
  entry.set_iid(iid);
  if constexpr (requires { entry.set_str(std::string(text)); })
    entry.set_str(std::string(text));
  else
    entry.set_name(std::string(text));
  return Name{iid};
}

PerfettoWriter::Name PerfettoWriter::slice_name(std::string_view text) {
  return intern(slice_names_, text, &InternedData::add_event_names);
}

PerfettoWriter::Name PerfettoWriter::category(std::string_view text) {
  return intern(categories_, text, &InternedData::add_event_categories);
}

PerfettoWriter::Name PerfettoWriter::argument_name(std::string_view text) {
  return intern(argument_names_, text, &InternedData::add_debug_annotation_names);
}

PerfettoWriter::Name PerfettoWriter::argument_word(std::string_view text) {
  return intern(argument_words_, text, &InternedData::add_debug_annotation_string_values);
}

TrackEvent& PerfettoWriter::event(Track track, std::uint64_t time, TrackEvent::Type type) {
  TracePacket& of_event = packet();
  of_event.set_timestamp(time);
  TrackEvent& event = *of_event.mutable_track_event();
  event.set_type(type);
  event.set_track_uuid(raw(track));
  return event;
}

TrackEvent& PerfettoWriter::described(Track track, std::uint64_t time, TrackEvent::Type type, Name category,
                                      std::span<const Argument> arguments) {
  TrackEvent& described = event(track, time, type);
  chunk_.mutable_packet()->rbegin()->set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  described.add_category_iids(raw(category));
  for (const Argument& argument : arguments) {
    proto::perfetto::DebugAnnotation& annotation = *described.add_debug_annotations();
    annotation.set_name_iid(raw(argument.key));
    switch (argument.kind) {
      case Argument::Kind::kCount:
        annotation.set_uint_value(argument.count);
        break;
      case Argument::Kind::kNumber:
        annotation.set_double_value(argument.number);
        break;
      case Argument::Kind::kWord:
        annotation.set_string_value_iid(raw(argument.word));
        break;
    }
  }
  return described;
}

void PerfettoWriter::begin(Track track, std::uint64_t time, Name category, Name name,
                           std::span<const Argument> arguments) {
  described(track, time, TrackEvent::TYPE_SLICE_BEGIN, category, arguments).set_name_iid(raw(name));
}

void PerfettoWriter::begin(Track track, std::uint64_t time, Name category, std::string_view name,
                           std::span<const Argument> arguments) {
  described(track, time, TrackEvent::TYPE_SLICE_BEGIN, category, arguments).set_name(std::string(name));
}

void PerfettoWriter::instant(Track track, std::uint64_t time, Name category, std::string_view name,
                             std::span<const Argument> arguments) {
  described(track, time, TrackEvent::TYPE_INSTANT, category, arguments).set_name(std::string(name));
}

void PerfettoWriter::end(Track track, std::uint64_t time) { event(track, time, TrackEvent::TYPE_SLICE_END); }

void PerfettoWriter::count(Track track, std::uint64_t time, std::uint64_t value) {
  event(track, time, TrackEvent::TYPE_COUNTER).set_counter_value(static_cast<std::int64_t>(value));
}

void PerfettoWriter::count(Track track, std::uint64_t time, double value) {
  event(track, time, TrackEvent::TYPE_COUNTER).set_double_counter_value(value);
}

}  // namespace tpsim::launch
