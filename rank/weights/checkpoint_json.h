// JSON texts of a checkpoint: as a stream of events, and model.safetensors.index.json, which says which file
// has which tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::rank {

// A JSON text as a stream of events, so that nothing is kept but what the reader asks for and keys given
// twice are seen: a header may have millions of entries, and comes from anywhere.
struct JsonEvent {
  enum class Kind : std::uint8_t {
    kKey,
    kString,
    kUnsigned,  // a whole number from 0 to 2^64 - 1, written without sign, point and exponent
    kOther,     // any other number, true, false
    kNull,
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray
  };
  Kind kind = Kind::kNull;
  std::string_view text;     // kKey, kString: until the handler returns
  std::uint64_t number = 0;  // kUnsigned

  // Whether a value begins here: everything but a key and an end.
  bool begins_value() const;
};

// Calls `handler` for each event of `text`, in order; what it throws is thrown here. Throws UserError that
// begins with `where` for text that is not one complete JSON value in UTF-8, at any depth of nesting.
void parse_json_events(std::string_view text, const std::string& where,
                       const std::function<void(const JsonEvent&)>& handler);

// File name in the checkpoint's folder -> names of its tensors, in the index's order.
using WeightMap = std::map<std::string, std::vector<std::string>>;

// `json`: the text of the index; `path` names it in errors. Only the object "weight_map" is read. Throws
// UserError for text that is not JSON, has no weight_map, an empty one or two, names a tensor twice, or names
// something else than a *.safetensors file of the same folder.
WeightMap parse_weight_map(std::string_view json, const std::string& path);

}  // namespace tpsim::rank
