#include "rank/weights/checkpoint_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "proto/base/error.h"
#include "rank/weights/stored_type.h"

namespace tpsim::rank {
namespace {

using Kind = JsonEvent::Kind;

class IndexReader {
 public:
  explicit IndexReader(const std::string& path) : path_(path) {}

  void take(const JsonEvent& event) {
    const bool opens = event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray;
    const bool closes = event.kind == Kind::kEndObject || event.kind == Kind::kEndArray;
    if (closes) --depth_;
    if (depth_ == 0 && event.begins_value() && event.kind != Kind::kBeginObject) {
      throw_user_error("{}: is not a JSON object; an index has the object \"weight_map\" in it", path_);
    }
    if (depth_ == 1) {
      if (event.kind == Kind::kKey) {
        in_map_ = event.text == "weight_map";
      } else if (in_map_ && event.begins_value()) {
        if (event.kind != Kind::kBeginObject) throw_user_error("{}: \"weight_map\" must be an object", path_);
        if (std::exchange(has_map_, true)) throw_user_error("{}: has \"weight_map\" twice", path_);
      }
    } else if (depth_ == 2 && in_map_) {
      take_entry(event);
    }
    if (opens) ++depth_;
  }

  WeightMap finish() {
    if (!has_map_)
      throw_user_error("{}: has no \"weight_map\", which says which file has which tensor", path_);
    if (map_.empty()) throw_user_error("{}: \"weight_map\" is empty", path_);
    return std::move(map_);
  }

 private:
  void take_entry(const JsonEvent& event) {
    if (event.kind == Kind::kKey) {
      name_ = event.text;
      if (!names_.insert(name_).second) {
        throw_user_error("{}: tensor {} is in \"weight_map\" twice", path_, in_quotes(name_));
      }
      return;
    }
    if (event.kind != Kind::kString) {
      throw_user_error("{}: \"weight_map\" must give the name of a file for tensor {}", path_,
                       in_quotes(name_));
    }
    // Nothing outside the folder is opened, whatever an index says.
    if (event.text.find('/') != std::string_view::npos || event.text.size() > kMaxFileName ||
        event.text.find('\0') != std::string_view::npos || !event.text.ends_with(".safetensors")) {
      throw_user_error(
          "{}: \"weight_map\" gives {} for tensor {}; the name of a .safetensors file in the same folder is "
          "needed",
          path_, in_quotes(event.text), in_quotes(name_));
    }
    map_[std::string(event.text)].push_back(name_);
  }

  static constexpr std::size_t kMaxFileName = 255;

  const std::string& path_;
  std::size_t depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string name_;
  std::unordered_set<std::string> names_;
  WeightMap map_;
};

using Kind = JsonEvent::Kind;

// nlohmann's events as ours.
class Adapter {
 public:
  Adapter(const std::string& where, const std::function<void(const JsonEvent&)>& handler)
      : where_(where), handler_(handler) {}

  bool null() { return send(Kind::kNull); }
  bool boolean(bool) { return send(Kind::kOther); }
  bool number_integer(std::int64_t) { return send(Kind::kOther); }
  bool number_unsigned(std::uint64_t value) { return send(Kind::kUnsigned, {}, value); }
  bool number_float(double, const std::string&) { return send(Kind::kOther); }
  bool string(const std::string& value) { return send(Kind::kString, value); }
  bool binary(std::vector<std::uint8_t>&) { return send(Kind::kOther); }
  bool key(const std::string& value) { return send(Kind::kKey, value); }
  bool start_object(std::size_t) { return send(Kind::kBeginObject); }
  bool end_object() { return send(Kind::kEndObject); }
  bool start_array(std::size_t) { return send(Kind::kBeginArray); }
  bool end_array() { return send(Kind::kEndArray); }
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    throw_user_error("{} is not valid JSON from byte {} on; the file is damaged, copy or download it again",
                     where_, position == 0 ? 0 : position - 1);
  }

 private:
  bool send(Kind kind, std::string_view text = {}, std::uint64_t number = 0) {
    handler_({kind, text, number});
    return true;
  }

  const std::string& where_;
  const std::function<void(const JsonEvent&)>& handler_;
};

}  // namespace

WeightMap parse_weight_map(std::string_view json, const std::string& path) {
  IndexReader reader(path);
  parse_json_events(json, path, [&](const JsonEvent& event) { reader.take(event); });
  return reader.finish();
}

bool JsonEvent::begins_value() const {
  return kind != Kind::kKey && kind != Kind::kEndObject && kind != Kind::kEndArray;
}

void parse_json_events(std::string_view text, const std::string& where,
                       const std::function<void(const JsonEvent&)>& handler) {
  // The parser takes a zero byte for the end of the text, and would not see what is after it.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw_user_error("{} has a zero byte at byte {}; it must be JSON text", where, zero);
  }
  Adapter adapter(where, handler);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &adapter);
}

}  // namespace tpsim::rank
