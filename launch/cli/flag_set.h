// The flags of one subcommand, from the command line and from a config file.
//
// A flag is declared once, with the function that reads its value; CLI11 parses and prints help, and the
// values are read afterwards in the order of declaration, so that the first wrong flag in that order is the
// one that the user hears about, however it was given. A flag on the command line wins over the same key of
// `--config`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cli/sglang_flags.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tpsim::launch {

class FlagSet {
 public:
  // Called with the flag's canonical name ("--page-size") and the text given. Throws UserError.
  using ReadValue = std::function<void(std::string_view flag, const std::string& value)>;
  using ReadList = std::function<void(std::string_view flag, const std::vector<std::string>& values)>;

  // The flags are added to `app`, which must outlive this object.
  explicit FlagSet(CLI::App& app);

  // Heading of the help under which the flags that follow are printed.
  void group(std::string heading) { group_ = std::move(heading); }

  // `names` as CLI11 takes them ("--tp-size,--tp"); the first long name is the canonical one. That none is
  // given twice is seen to by refuse_repeated_flags() (launch/cli/flag_command.h), for every command alike.
  void add_value(const std::string& names, const std::string& metavar, const std::string& help,
                 ReadValue read);
  // A value that is flags of something else in quotes, and so may begin as a flag does.
  void add_flags_value(const std::string& name, const std::string& help, ReadValue read);
  // One or more values, separated by blanks.
  void add_list(const std::string& names, const std::string& metavar, const std::string& help, ReadList read);
  // The word that the command is about, its only one without a dash; `required`: must be given.
  void add_word(const std::string& metavar, const std::string& help, std::string& target,
                bool required = true);
  // Of `names` (canonical), the flags declared so far take a list of values separated by commas, or by YAML's
  // list in a config file; each is read like a single one, and the last stays. See lists(). A switch takes
  // --flag=true,false. Not `taken`: by a command that takes no lists; one is refused with a sentence about
  // the command that does.
  void mark_lists(std::span<const std::string_view> names, bool taken);
  // A switch; a config file may say false.
  void add_switch(const std::string& names, const std::string& help, bool& target);
  // A flag that means true alone, and takes true or false: SGLang's for diffusion pipelines.
  void add_boolean(const std::string& names, const std::string& help, std::optional<bool>& target);

  // Flags of SGLang's server (or its router) that mean nothing to a simulation (launch/cli/sglang_flags.h)
  // are accepted: their names ("--port") go to `ignored`, which must outlive read(). Without this call they
  // are refused.
  void accept_flags_of(SglangProgram program, std::vector<std::string>& ignored) {
    program_ = program;
    ignored_ = &ignored;
  }

  // After `app` was parsed. Refuses flags that `app` did not know, all of them in one sentence (of an unknown
  // one the nearest known one is named), reads the config file if `--config` was given, and hands every value
  // to its function. Throws UserError.
  void read();

  struct List {
    std::string flag;                 // canonical
    std::vector<std::string> values;  // two or more, no two alike
  };
  // After read(): what mark_lists() made possible and the user made use of, in the order of declaration.
  const std::vector<List>& lists() const { return lists_; }
  // After read(): what was given, on the command line or in the config file, by canonical name; of several
  // values with a blank between them.
  const std::map<std::string, std::string>& given() const { return given_; }
  // Canonical names, in the order of declaration.
  std::vector<std::string> names() const;
  // Reads one more value of a flag, as if it had been given. REQUIRES: `flag` is declared.
  void set(std::string_view flag, const std::string& value) const;

 private:
  enum class Kind { kValue, kList, kSwitch, kBoolean };
  enum class Lists { kNone, kTaken, kRefused };
  struct Flag {
    Kind kind;
    std::string name;                  // canonical, with dashes
    std::vector<std::string> aliases;  // all long names without dashes
    CLI::Option* option;
    ReadList read;
    Lists lists = Lists::kNone;
    bool of_flags = false;  // its value may begin with dashes
  };

  void add(Kind kind, const std::string& names, const std::string& metavar, const std::string& help,
           ReadList read);
  void read_values(const Flag& flag, const std::vector<std::string>& values);
  void refuse_missing_values() const;
  std::string unknown(std::string_view name) const;
  void take_extras();
  void take_sglang_flag(const std::string& name, const SglangFlag& flag,
                        const std::vector<std::string>& values);
  std::vector<std::string_view> known_names() const;

  CLI::App& app_;
  std::string group_ = "Options";
  std::vector<Flag> flags_;
  std::string config_path_;
  std::vector<List> lists_;
  std::map<std::string, std::string> given_;
  SglangProgram program_ = SglangProgram::kServer;
  std::vector<std::string>* ignored_ = nullptr;
};

}  // namespace tpsim::launch
