// Forms of clients (RFC 7578), as OpenAI's SDKs and `curl -F` send them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim::launch {

struct FormPart {
  std::string_view name, filename;  // filename empty: a field
  std::string_view content;         // of the body
};

bool is_form(std::string_view content_type);
// In their order; views of `body` and into it. Throws Refusal where it is no form.
std::vector<FormPart> read_form(std::string_view content_type, std::string_view body);

}  // namespace tpsim::launch
