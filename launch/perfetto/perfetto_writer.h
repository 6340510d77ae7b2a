// Writes a trace in Perfetto's format (proto/perfetto.proto), which ui.perfetto.dev opens: packet by packet,
// so that memory does not grow with the length of the trace.
//
// Events may come in any order: Perfetto sorts them by time and keeps the order of the file where times are
// equal. On one track slices nest: what began last ends first.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "proto/base/output_file.h"
#include "proto/perfetto.pb.h"

namespace tpsim::launch {

class PerfettoWriter {
 public:
  enum class Track : std::uint64_t { kNone };
  // A text that many events name and the file holds once.
  enum class Name : std::uint64_t { kNone };
  // A figure or a word of an event; shown when it is clicked.
  struct Argument {
    Name key;
    std::uint64_t count = 0;
    double number = 0;
    Name word = Name::kNone;
    enum class Kind : std::uint8_t { kCount, kNumber, kWord } kind = Kind::kCount;

    static Argument of(Name key, std::uint64_t count) { return {.key = key, .count = count}; }
    static Argument of(Name key, double number) {
      return {.key = key, .number = number, .kind = Kind::kNumber};
    }
    static Argument of(Name key, Name word) { return {.key = key, .word = word, .kind = Kind::kWord}; }
  };

  // `file` must outlive it.
  explicit PerfettoWriter(OutputFile& file);

  // A group of tracks; tracks of a group stand in the order of their `place`, those of equal place and name
  // are shown as one that grows as its slices overlap.
  Track add_process(std::int32_t pid, std::string_view name);
  Track add_track(Track parent, std::string_view name, std::int32_t place);
  Track add_counter(Track parent, std::string_view name, std::string_view unit, std::int32_t place);

  // Names of slices, of categories, and of arguments and their words are three lists. The same text gives the
  // same name.
  Name slice_name(std::string_view text);
  Name category(std::string_view text);
  Name argument_name(std::string_view text);
  Name argument_word(std::string_view text);

  // Nanoseconds of the run's clock.
  void begin(Track track, std::uint64_t time, Name category, Name name, std::span<const Argument> arguments);
  // The same with a name of its own.
  void begin(Track track, std::uint64_t time, Name category, std::string_view name,
             std::span<const Argument> arguments);
  void end(Track track, std::uint64_t time);
  // What takes no time.
  void instant(Track track, std::uint64_t time, Name category, std::string_view name,
               std::span<const Argument> arguments);
  void count(Track track, std::uint64_t time, std::uint64_t value);
  void count(Track track, std::uint64_t time, double value);

  // Uncompressed, so far.
  std::uint64_t bytes() const { return bytes_; }
  // Hands what is buffered to the file. Nothing may be written afterwards.
  void finish() { flush(); }

 private:
  using Names = std::map<std::string, std::uint64_t, std::less<>>;

  proto::perfetto::TracePacket& packet();
  proto::perfetto::TrackEvent& event(Track track, std::uint64_t time, proto::perfetto::TrackEvent::Type type);
  proto::perfetto::TrackEvent& described(Track track, std::uint64_t time,
                                         proto::perfetto::TrackEvent::Type type, Name category,
                                         std::span<const Argument> arguments);
  proto::perfetto::TrackDescriptor& describe(Track parent, std::string_view name, std::int32_t place);
  template <class Entry>
  Name intern(Names& names, std::string_view text, Entry* (proto::perfetto::InternedData::*add)());
  void flush();

  OutputFile& file_;
  proto::perfetto::Trace chunk_;  // packets that are not written yet
  std::string buffer_;
  std::uint64_t bytes_ = 0;
  std::uint64_t last_track_ = 0;
  Names slice_names_, categories_, argument_names_, argument_words_;
};

}  // namespace tpsim::launch
