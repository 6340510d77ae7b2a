#include "launch/cli/yaml_file.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

// Where the last document began.
class DocumentStart : public YAML::EventHandler {
 public:
  int line = 0;  // from 0

  void OnDocumentStart(const YAML::Mark& mark) override { line = mark.line; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

}  // namespace

std::string read_text(std::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // A folder opens, but cannot be read.
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && !file.eof()))
    throw_user_error("{} {}: {}", flag, path, std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

YAML::Node load_yaml(const std::string& text, const std::string& path, std::string_view expected) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentStart document;
    if (!parser.HandleNextDocument(document)) return {};
    if (parser.HandleNextDocument(document))
      throw_user_error("{}:{}: begins a second document; give {}", path, document.line + 1, expected);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw_user_error("{}:{}: not valid YAML: {}", path, std::max(0, error.mark.line) + 1, error.msg);
  }
}

}  // namespace tpsim::launch
