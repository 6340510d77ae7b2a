#include "launch/tokenizer/chat_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using Json = ShallowJson;

constexpr std::string_view kSpaces = " \t\n\r";

// Takes `word` off the front of `text`, with the spaces before it.
bool take(std::string_view& text, std::string_view word) {
  std::string_view rest = text;
  rest.remove_prefix(std::min(rest.find_first_not_of(kSpaces), rest.size()));
  if (!rest.starts_with(word)) return false;
  rest.remove_prefix(word.size());
  text = rest;
  return true;
}

bool is_name(char letter) {
  return letter == '_' || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

// Whether the text goes on with message.content, message['content'] and so on, and not with a longer name.
bool takes_content(std::string_view text) {
  const auto ends = [](std::string_view rest) { return rest.empty() || !is_name(rest.front()); };
  for (const std::string_view name : {"message", "msg", "m"}) {
    std::string_view rest = text;
    if (!take(rest, name) || !ends(rest)) continue;
    if (take(rest, ".")) return take(rest, "content") && ends(rest);
    return take(rest, "[") && (take(rest, "'content'") || take(rest, "\"content\"")) && take(rest, "]");
  }
  return false;
}

// A part of a content, as a template sees it; null: none.
Json part_for_template(const Json& part) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kMedia = {
      {{"image_url", "image"}, {"video_url", "video"}, {"audio_url", "audio"}}};
  const std::string type = part["type"];
  for (const auto& [sent, seen] : kMedia) {
    if (type == sent) return {{"type", seen}};
  }
  return type == "text" || type == "tool_reference" ? part : Json();
}

Json content_for_template(const Json& content, bool parts) {
  Json seen = Json::array();
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part["type"] == "text";
    if (Json shown = part_for_template(part); !shown.is_null()) seen.push_back(std::move(shown));
    if (is_text) text += (text.empty() ? "" : " ") + part["text"].get<std::string>();
  }
  return parts ? seen : Json(text);
}

void check_content(const Json& content, std::size_t number) {
  if (content.is_null() || content.is_string()) return;
  if (!content.is_array()) {
    throw_user_error("messages[{}].content must be a text or a list of parts", number);
  }
  for (const Json& part : content) {
    const auto has_text = [&](const char* key) {
      const auto found = part.find(key);
      return found != part.end() && found->is_string();
    };
    if (!part.is_object() || !has_text("type") || (part["type"] == "text" && !has_text("text"))) {
      throw_user_error(
          "messages[{}].content has a part that is neither {{\"type\": \"text\", \"text\": …}} nor of "
          "another \"type\"",
          number);
    }
  }
}

Json checked(const std::string& text) {
  const Json messages = parse_shallow_json(text, "messages");
  if (!messages.is_array() || messages.empty())
    throw UserError("messages must be a list of at least one message");
  std::size_t number = 0;
  for (const Json& message : messages) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (!message.is_object() || role == message.end() || !role->is_string())
      throw_user_error("messages[{}] must be an object with a \"role\"", number);
    const auto content = message.find("content");
    if (content != message.end()) check_content(*content, number);
    ++number;
  }
  return messages;
}

void parse_arguments(Json& calls, std::size_t number) {
  for (Json& call : calls) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    Json parsed = parse_shallow_json(arguments->get<std::string>(), "tool_calls");
    if (parsed.is_discarded())
      throw_user_error("messages[{}].tool_calls: the arguments of a call are not JSON", number);
    *arguments = std::move(parsed);
  }
}

}  // namespace

ShallowJson parse_shallow_json(const std::string& text, std::string_view what) {
  constexpr int kDeepest = 100;
  const auto keep = [&](int depth, ShallowJson::parse_event_t, ShallowJson&) {
    if (depth > kDeepest) throw_user_error("{}: nested deeper than {} levels", what, kDeepest);
    return true;
  };
  return ShallowJson::parse(text, keep, /*allow_exceptions=*/false);
}

bool expects_parts(std::string_view chat_template) {
  for (const std::string_view medium : {"image", "audio", "video", "vision"}) {
    if (chat_template.find(medium) != std::string_view::npos) return true;
  }
  // {%- for part in message['content'] -%}
  for (std::size_t at = 0; (at = chat_template.find("{%", at)) != std::string_view::npos; at += 2) {
    std::string_view rest = chat_template.substr(at + 2);
    take(rest, "-") || take(rest, "+");
    if (!take(rest, "for")) continue;
    rest = rest.substr(0, rest.find("%}"));
    const std::size_t in = rest.find(" in ");
    if (in != std::string_view::npos && takes_content(rest.substr(in + 4))) return true;
  }
  return false;
}

std::string prepare_messages(const std::string& messages, bool parts) {
  Json prepared = Json::array();
  std::size_t number = 0;
  for (const Json& message : checked(messages)) {
    Json shown = Json::object();
    for (const auto& [key, value] : message.items()) {
      if (key == "content" && value.is_array())
        shown[key] = content_for_template(value, parts);
      else if (!value.is_null())
        shown[key] = value;
    }
    if (!shown.contains("content")) shown["content"] = "";
    const auto calls = shown.find("tool_calls");
    if (calls != shown.end() && calls->is_array() && shown["role"] == "assistant")
      parse_arguments(*calls, number);
    prepared.push_back(std::move(shown));
    ++number;
  }
  return prepared.dump();
}

std::string plain_chat(const std::string& messages, bool add_generation_prompt) {
  std::string text;
  for (const Json& message : Json::parse(prepare_messages(messages, /*parts=*/false))) {
    text += message["role"].get<std::string>() + ": " + message["content"].get<std::string>() + "\n";
  }
  return add_generation_prompt ? text + "assistant:" : text;
}

}  // namespace tpsim::launch
