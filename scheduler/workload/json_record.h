// One JSON object of a trace, read for the few keys that a format knows, without building a tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/token_runs.h"
#include "scheduler/workload/trace_input.h"

namespace tpsim::scheduler {

// The objects of a file: one in each line, or all in one array.
class JsonRecords {
 public:
  explicit JsonRecords(TraceInput& input) : input_(input) {}

  // The text of the next object and where it begins; false at the end. The views live until the next call.
  // Throws UserError for an array that is not closed or does not hold objects.
  bool next(std::string_view& text, Place& place);
  // The next next() returns the same object again. REQUIRES: the last call was a successful next().
  void unread() { unread_ = true; }

 private:
  bool next_of_array();

  TraceInput& input_;
  bool begun_ = false;
  bool array_ = false;
  bool closed_ = false;  // the array's end was seen
  bool unread_ = false;
  std::uint64_t elements_ = 0;
  std::string element_;
  std::string_view text_;
  Place place_;
};

enum class JsonKind : std::uint8_t {
  kAbsent,
  kNull,
  kBoolean,
  kUnsigned,  // an integer from 0 to 2^64-1
  kNegative,  // an integer below 0
  kReal,      // any other number
  kString,
  kUnsigneds,  // an array of kUnsigned, or an empty one
  kPairs,      // an array of arrays of exactly two kUnsigned
  kOther       // an object, or an array that is neither of the two
};

struct JsonField {
  JsonKind kind = JsonKind::kAbsent;
  std::uint64_t integer = 0;          // kUnsigned
  double number = 0;                  // kUnsigned, kNegative, kReal; kBoolean: 1 or 0
  std::string text;                   // kString
  std::vector<std::uint64_t> values;  // kUnsigneds; kPairs: first and second in turn
};

// The values of `keys` in one object. Meant to be reused for every record: it keeps its buffers.
class JsonRecord {
 public:
  // REQUIRES: the strings that `keys` refers to outlive the record (they are literals).
  explicit JsonRecord(std::span<const std::string_view> keys);

  // Replaces the content. Throws UserError for text that is not one JSON object, or names a known key twice.
  // Other keys are skipped; the first of them is in unknown_key().
  void parse(std::string_view text, const Place& place);

  // REQUIRES: `index` is a position in `keys`.
  const JsonField& field(std::size_t index) const { return fields_[index]; }
  // What the field is, for messages: "missing", "true", "an array of numbers" …
  std::string found(std::size_t index) const;
  std::string_view name(std::size_t index) const { return keys_[index]; }
  bool has(std::size_t index) const { return fields_[index].kind != JsonKind::kAbsent; }
  const std::string& unknown_key() const { return unknown_key_; }  // "" = none

  // The field as a whole number in [min, max], or UserError that says what it is instead.
  std::uint64_t count(std::size_t index, std::uint64_t min, std::uint64_t max) const;
  bool boolean(std::size_t index) const;
  // The field as a finite number, not negative.
  double number(std::size_t index) const;
  // The field as a token sequence out of token ids or out of [first, length] pairs; ids below `limit`.
  kvcache::TokenSequence tokens(std::size_t index, kvcache::TokenId limit) const;

 private:
  friend class JsonRecordHandler;

  void clear();

  std::vector<std::string_view> keys_;
  std::vector<JsonField> fields_;
  std::string unknown_key_;
  Place place_;
};

}  // namespace tpsim::scheduler
