// The messages of a chat as SGLang gives them to a template (entrypoints/openai/serving_chat.py,
// parser/jinja_template_utils.py): contents that are lists of parts become one text where the template
// expects texts, images and the like become {"type": "image"}, nulls are left out, arguments of tool calls
// are JSON and not text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tpsim::launch {

// JSON of clients. Keys keep the order in which the client sent them, as in Python: a template may print
// them.
using ShallowJson = nlohmann::ordered_json;
// Parsed only where it is not so deep that walking through it would overflow the stack. is_discarded() where
// `text` is not JSON. Throws UserError naming `what` where it is nested deeper than 100 levels.
ShallowJson parse_shallow_json(const std::string& text, std::string_view what);

// Whether a template goes through the parts of a content, by SGLang's rule.
bool expects_parts(std::string_view chat_template);

// JSON array to JSON array. `parts`: expects_parts() of the template. Throws UserError with a sentence for
// the client where `messages` is not an array of objects with a role, and contents of a kind that OpenAI's
// protocol has.
std::string prepare_messages(const std::string& messages, bool parts);

// "ROLE: TEXT" lines of them: the prompt where there is no template. Throws as prepare_messages().
std::string plain_chat(const std::string& messages, bool add_generation_prompt);

}  // namespace tpsim::launch
