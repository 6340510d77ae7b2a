#include "scheduler/workload/json_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "scheduler/workload/plain_json.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

bool JsonRecords::next(std::string_view& text, Place& place) {
  if (unread_) {
    unread_ = false;
  } else {
    if (!begun_) {
      begun_ = true;
      if (input_.peek_filled() == '[') {
        array_ = true;
        input_.get();
      }
    }
    if (array_) {
      if (!next_of_array()) return false;
    } else {
      if (!input_.next_filled_line(text_)) return false;
      place_ = input_.place();
    }
  }
  text = text_;
  place = place_;
  return true;
}

bool JsonRecords::next_of_array() {
  if (closed_) return false;
  int byte = input_.peek_filled();
  place_ = input_.place_of_next_byte();
  if (byte == ',' && elements_ > 0) {
    input_.get();
    byte = input_.peek_filled();
    place_ = input_.place_of_next_byte();
  } else if (byte == ']') {
    input_.get();
    closed_ = true;
    if (input_.peek_filled() != -1) {
      input_.place_of_next_byte().fail("there is text after the end of the JSON array; remove it");
    }
    return false;
  } else if (byte != -1 && elements_ > 0) {
    place_.fail("the elements of the JSON array need a comma between them, or \"]\" after the last");
  }
  if (byte == -1) {
    place_.fail("the JSON array is not closed by \"]\"; the file is truncated, get the whole file");
  }
  if (byte != '{')
    place_.fail("an element of the JSON array is not an object like {{\"prompt_len\": 100, …}}");

  // Find the end of the object; whether what is inside is JSON is JsonRecord's business.
  element_.clear();
  int depth = 0;
  bool in_string = false;
  bool escaped = false;
  do {
    byte = input_.get();
    if (byte == -1) {
      place_.fail(
          "the JSON object that begins here is not closed; the file is truncated, get the whole file");
    }
    element_.push_back(static_cast<char>(byte));
    if (element_.size() >= kMaxRecordBytes) {
      place_.fail("the JSON object that begins here is longer than {} MiB; give the right file",
                  kMaxRecordBytes >> 20);
    }
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (byte == '\\') {
        escaped = true;
      } else if (byte == '"') {
        in_string = false;
      }
    } else if (byte == '"') {
      in_string = true;
    } else if (byte == '{' || byte == '[') {
      ++depth;
    } else if (byte == '}' || byte == ']') {
      --depth;
    }
  } while (depth > 0);
  ++elements_;
  text_ = element_;
  return true;
}

// Receives the parser's events. Depth 1 is inside the record, 2 inside an array of it, 3 inside a pair.
class JsonRecordHandler {
 public:
  explicit JsonRecordHandler(JsonRecord& record) : record_(&record) {}

  bool is_object() const { return is_object_; }
  bool has_error() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  std::size_t error_position() const { return error_position_; }
  const std::string& repeated_key() const { return repeated_key_; }

  bool null() { return scalar(JsonKind::kNull); }
  bool boolean(bool value) { return scalar(JsonKind::kBoolean, value ? 1 : 0); }
  bool number_integer(std::int64_t value) {
    return value >= 0 ? number_unsigned(static_cast<std::uint64_t>(value))
                      : scalar(JsonKind::kNegative, static_cast<double>(value));
  }
  bool number_unsigned(std::uint64_t value) {
    if (field_ == nullptr) return true;
    if (depth_ == 1) {
      field_->integer = value;
      return scalar(JsonKind::kUnsigned, static_cast<double>(value));
    }
    if (depth_ == 2 && field_->kind == JsonKind::kUnsigneds) {
      field_->values.push_back(value);
    } else if (depth_ == 3 && field_->kind == JsonKind::kPairs && pair_size_ < 2) {
      field_->values.push_back(value);
      ++pair_size_;
    } else {
      field_->kind = JsonKind::kOther;
    }
    return true;
  }
  bool number_float(double value, const std::string&) { return scalar(JsonKind::kReal, value); }
  bool string(std::string_view value) {
    if (field_ != nullptr && depth_ == 1) field_->text = value;
    return scalar(JsonKind::kString);
  }
  bool binary(std::vector<std::uint8_t>&) { return scalar(JsonKind::kOther); }

  bool start_object(std::size_t) {
    if (depth_ == 0) is_object_ = true;
    if (depth_ > 0 && field_ != nullptr) field_->kind = JsonKind::kOther;
    ++depth_;
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool key(std::string_view name) {
    if (depth_ != 1 || !is_object_) return true;
    field_ = nullptr;
    const std::size_t keys = record_->keys_.size();
    for (std::size_t looked = 0; looked < keys; ++looked) {
      const std::size_t i = std::exchange(next_key_, next_key_ + 1 < keys ? next_key_ + 1 : 0);
      if (record_->keys_[i] == name) {
        field_ = &record_->fields_[i];
        if (field_->kind != JsonKind::kAbsent && repeated_key_.empty()) repeated_key_ = name;
        field_->kind = JsonKind::kNull;
        field_->values.clear();
        return true;
      }
    }
    if (record_->unknown_key_.empty()) record_->unknown_key_ = name.empty() ? " " : name;
    return true;
  }
  bool start_array(std::size_t) {
    if (field_ != nullptr) {
      if (depth_ == 1) {
        field_->kind = JsonKind::kUnsigneds;
      } else if (depth_ == 2 && field_->values.empty() && field_->kind == JsonKind::kUnsigneds) {
        field_->kind = JsonKind::kPairs;
      } else if (depth_ != 2 || field_->kind != JsonKind::kPairs) {
        field_->kind = JsonKind::kOther;
      }
    }
    pair_size_ = 0;
    ++depth_;
    return true;
  }
  // A whole array of whole numbers as `numbers(values)` appends them: nothing else is told of it. Returns
  // whether they were all; what is not wanted is given to nullptr.
  template <typename Numbers>
  bool unsigneds(const Numbers& numbers) {
    const bool wanted = field_ != nullptr && depth_ == 1;
    if (field_ != nullptr && depth_ != 1) return false;
    if (!numbers(wanted ? &field_->values : nullptr)) {
      if (wanted) field_->values.clear();
      return false;
    }
    if (wanted) field_->kind = JsonKind::kUnsigneds;
    pair_size_ = 0;
    return true;
  }
  bool end_array() {
    --depth_;
    if (field_ != nullptr && depth_ == 2 && pair_size_ != 2) field_->kind = JsonKind::kOther;
    return true;
  }
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& exception) {
    // "[json.exception…] parse error at …: what - why; last read: '…'; expected …": keep the why.
    std::string text = exception.what();
    if (const std::size_t at = text.find(" - "); at != std::string::npos) text = text.substr(at + 3);
    if (const std::size_t at = text.find("; last read"); at != std::string::npos) text = text.substr(0, at);
    if (const std::size_t at = text.find("] "); text.starts_with('[') && at != std::string::npos) {
      text = text.substr(at + 2);
    }
    error_ = text.substr(0, 100);
    error_position_ = position;
    return false;
  }

 private:
  bool scalar(JsonKind kind, double number = 0) {
    if (field_ != nullptr) {
      field_->kind = depth_ == 1 ? kind : JsonKind::kOther;
      field_->number = number;
    }
    return true;
  }

  JsonRecord* record_;
  JsonField* field_ = nullptr;  // of the key that was read last; null: skipped
  std::size_t next_key_ = 0;    // that is looked at first: mostly keys come in the same order
  int depth_ = 0;
  int pair_size_ = 0;
  bool is_object_ = false;
  std::string error_;
  std::size_t error_position_ = 0;
  std::string repeated_key_;
};

JsonRecord::JsonRecord(std::span<const std::string_view> keys)
    : keys_(keys.begin(), keys.end()), fields_(keys.size()) {}

void JsonRecord::clear() {
  unknown_key_.clear();
  for (JsonField& field : fields_) {
    field.kind = JsonKind::kAbsent;
    field.values.clear();
  }
}

void JsonRecord::parse(std::string_view text, const Place& place) {
  place_ = place;
  clear();
  JsonRecordHandler handler(*this);
  if (!PlainJson<JsonRecordHandler>(text, handler).parse()) {
    clear();
    handler = JsonRecordHandler(*this);
    nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &handler);
  }
  if (handler.has_error()) {
    const std::size_t position = std::min(handler.error_position(), text.size());
    const std::string_view before = text.substr(0, position);
    const std::size_t line_begin = before.rfind('\n');
    Place at = place;
    at.line += static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t column = line_begin == std::string_view::npos ? position : position - line_begin - 1;
    at.fail("not valid JSON at column {} ({}); a complete object like {{\"key\": value, …}} is needed",
            column, handler.error());
  }
  if (!handler.is_object()) place.fail("not a JSON object; an object like {{\"key\": value, …}} is needed");
  if (!handler.repeated_key().empty()) {
    place.fail("{} is given twice; give it once", in_quotes(handler.repeated_key()));
  }
}

std::string JsonRecord::found(std::size_t index) const {
  const JsonField& field = fields_[index];
  switch (field.kind) {
    case JsonKind::kAbsent:
      return "missing";
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBoolean:
      return field.number != 0 ? "true" : "false";
    case JsonKind::kUnsigned:
      return fmt::format("{}", field.integer);
    case JsonKind::kNegative:
    case JsonKind::kReal:
      return fmt::format("{}", field.number);
    case JsonKind::kString:
      return "the text " + in_quotes(field.text);
    case JsonKind::kUnsigneds:
      return "an array of numbers";
    case JsonKind::kPairs:
      return "an array of pairs";
    case JsonKind::kOther:
      break;
  }
  return "an object, or an array with something else than whole numbers from 0 up in it";
}

std::uint64_t JsonRecord::count(std::size_t index, std::uint64_t min, std::uint64_t max) const {
  const JsonField& field = fields_[index];
  if (field.kind == JsonKind::kUnsigned && field.integer >= min && field.integer <= max) return field.integer;
  // Some exporters write 512.0 for 512.
  if (field.kind == JsonKind::kReal && field.number == std::floor(field.number) &&
      field.number >= static_cast<double>(min) && field.number <= static_cast<double>(max) &&
      field.number < 0x1p53) {
    return static_cast<std::uint64_t>(field.number);
  }
  place_.fail("{} is {}; a whole number from {} to {} is needed", keys_[index], found(index), min, max);
}

double JsonRecord::number(std::size_t index) const {
  const JsonField& field = fields_[index];
  const bool numeric = field.kind == JsonKind::kUnsigned || field.kind == JsonKind::kReal;
  if (numeric && std::isfinite(field.number) && field.number >= 0) return field.number + 0.0;  // no -0
  place_.fail("{} is {}; a number, not negative, is needed", keys_[index], found(index));
}

bool JsonRecord::boolean(std::size_t index) const {
  const JsonField& field = fields_[index];
  if (field.kind == JsonKind::kBoolean) return field.number != 0;
  place_.fail("{} is {}; true or false is needed", keys_[index], found(index));
}

kvcache::TokenSequence JsonRecord::tokens(std::size_t index, kvcache::TokenId limit) const {
  const JsonField& field = fields_[index];
  kvcache::TokenSequence sequence;
  if (field.kind == JsonKind::kUnsigneds) {
    for (const std::uint64_t id : field.values) {
      if (id >= limit) place_.fail("{} has the token id {}; ids are below {}", keys_[index], id, limit);
      sequence.append({id, 1});
    }
    return sequence;
  }
  if (field.kind != JsonKind::kPairs) {
    place_.fail("{} is {}; token ids [17, 4, …] or runs [[first, length], …] are needed", keys_[index],
                found(index));
  }
  for (std::size_t i = 0; i < field.values.size(); i += 2) {
    const std::uint64_t first = field.values[i];
    const std::uint64_t length = field.values[i + 1];
    // A run may not be longer than a request, nor a sum of them: TokenSequence counts runs in 32 bits.
    if (length == 0 || length > kMaxRequestTokens || sequence.size() + length > kMaxRequestTokens) {
      place_.fail("{} has a run of {} tokens (position {}); a prompt is {} tokens at most, a run at least 1",
                  keys_[index], length, i / 2, kMaxRequestTokens);
    }
    if (first >= limit || limit - first < length) {
      place_.fail("{} has a run that begins with the id {}; ids are below {}", keys_[index], first, limit);
    }
    sequence.append({first, static_cast<std::uint32_t>(length)});
  }
  return sequence;
}

}  // namespace tpsim::scheduler
