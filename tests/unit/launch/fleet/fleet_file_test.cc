#include "launch/fleet/fleet_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "proto/base/error.h"

namespace tpsim::launch {
namespace {

using Words = std::vector<std::string>;

std::string complaint(const std::string& text) {
  try {
    parse_fleet(text, "f.yaml");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(FleetFile, LaunchLinesAsPeopleHaveThem) {
  setenv("TPSIM_FLEET_MODEL", "Qwen/Qwen3-32B", 1);
  const FleetFile fleet = parse_fleet(R"(
# a fleet
router: python3 -m sglang_router.launch_router --policy cache_aware --host 0.0.0.0
workers:
  - {count: 4, hardware: h200-sxm, args: --model-path Qwen/Qwen3-32B --tp 8}
  - name: small
    hardware: l40s
    args: |
      SGLANG_X=1 python3 -m sglang.launch_server \
        --model-path ${TPSIM_FLEET_MODEL} --tp 2  # two of them
        --json '{"a": "$b c"}'
  - hardware: l40s
    args: [sglang, serve, --tp, "1"]
)",
                                      "f.yaml");
  EXPECT_EQ(fleet.router_line, 3U);
  EXPECT_EQ(fleet.router_flags, (Words{"--policy", "cache_aware", "--host", "0.0.0.0"}));
  ASSERT_EQ(fleet.groups.size(), 3U);
  EXPECT_EQ(fleet.servers(), 6U);
  EXPECT_EQ(fleet.groups[0].name, "workers");
  EXPECT_EQ(fleet.groups[0].flags, (Words{"--model-path", "Qwen/Qwen3-32B", "--tp", "8"}));
  EXPECT_EQ(fleet.groups[1].name, "small");
  EXPECT_EQ(fleet.groups[1].line, 6U);
  EXPECT_EQ(fleet.groups[1].flags,
            (Words{"--model-path", "Qwen/Qwen3-32B", "--tp", "2", "--json", R"({"a": "$b c"})"}));
  EXPECT_EQ(fleet.groups[2].name, "workers 3");
  EXPECT_EQ(fleet.groups[2].flags, (Words{"--tp", "1"}));
}

TEST(FleetFile, WordsAreAShells) {
  setenv("TPSIM_FLEET_TWO", "--tp 2", 1);
  const auto flags = [](const std::string& args) {
    return parse_fleet("workers:\n  - hardware: l40s\n    args: |\n      " + args + "\n", "f.yaml")
        .groups[0]
        .flags;
  };
  EXPECT_EQ(flags("--served-model-name serve $TPSIM_FLEET_TWO"),
            (Words{"--served-model-name", "serve", "--tp", "2"}));
  EXPECT_EQ(flags(R"(--a "it's $TPSIM_FLEET_TWO" --b 'no $X' \$Y ${TPSIM_FLEET_TWO}x)"),
            (Words{"--a", "it's --tp 2", "--b", "no $X", "$Y", "--tp", "2x"}));
  EXPECT_EQ(flags("--host ${TPSIM_NEVER_SET} --dist-init-addr $TPSIM_NEVER_SET:5000 --tp 2"),
            (Words{"--host", "$TPSIM_NEVER_SET", "--dist-init-addr", "$TPSIM_NEVER_SET:5000", "--tp", "2"}));
}

TEST(FleetFile, SharesAreOfWorkers) {
  const std::string text = "workers: {share: 0.5, hardware: b200, args: --tp 4}\n";
  EXPECT_EQ(parse_fleet(text, "f.yaml").groups[0].share, 0.5);
  for (const std::string wrong : {"0", "-1", "nan", "inf", "1e7", "1x"}) {
    const std::string other = "workers: {share: " + wrong + ", hardware: b200, args: --tp 4}\n";
    EXPECT_EQ(complaint(other),
              "f.yaml:1: share: " + wrong + ": must be a part of requests, above 0 and at most 1e+06");
  }
  EXPECT_EQ(complaint("prefill: {share: 1, hardware: b200, args: --tp 4}\n"),
            "f.yaml:1: share: of prefill is not simulated; give workers");
}

TEST(FleetFile, JsonIsReadToo) {
  const FleetFile fleet =
      parse_fleet(R"({"workers": {"hardware": "b200", "count": 1, "args": "--tp 4"}})", "f.json");
  EXPECT_EQ(fleet.servers(), 1U);
  EXPECT_EQ(fleet.router_line, 0U);
}

TEST(FleetFile, EachMistakeNamesLineAndKey) {
  const std::string two = "  - {count: 2, hardware: h200-sxm, args: --tp 8}\n";
  EXPECT_EQ(complaint("router: x\nworker:\n" + two),
            "f.yaml:3: worker: is no key of a fleet, did you mean workers?");
  EXPECT_EQ(complaint("router: x\nworkers:\n  - {counts: 2, hardware: b200, args: --tp 8}\n"),
            "f.yaml:3: counts: is no key of a fleet, did you mean count?");
  EXPECT_NE(complaint("workers:\n" + two).find("router is missing"), std::string::npos);
  EXPECT_NE(complaint("router: x\nprefill:\n" + two).find("f.yaml:1: decode is missing"), std::string::npos);
  EXPECT_NE(complaint("router: x\nworkers:\n" + two + "decode:\n" + two).find("workers beside decode"),
            std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {args: --tp 8}\n").find("f.yaml:2: workers: hardware is missing"),
            std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200}\n").find("args is missing"), std::string::npos);
  EXPECT_NE(
      complaint("workers:\n  - {hardware: b200, count: 0, args: x}\n").find("f.yaml:2: count: 0: must be"),
      std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200, count: 2.5, args: x}\n").find("count: 2.5: must be"),
            std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200, args: \"'x\"}\n").find("not closed"),
            std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200, args: $TPSIM_NEVER_SET}\n")
                .find("$TPSIM_NEVER_SET: is not set"),
            std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200, args: \"--tp ${TPSIM_NEVER_SET}\"}\n")
                .find("$TPSIM_NEVER_SET: is not set"),
            std::string::npos);
  EXPECT_NE(
      complaint("workers:\n  - {hardware: b200, hardware: b300, args: x}\n").find("hardware is given twice"),
      std::string::npos);
  const std::string scaled = "{hardware: b200, count: 5, autoscale: 1..4, args: x}\n";
  EXPECT_NE(
      complaint("workers:\n  - " + scaled).find("f.yaml:2: autoscale: 1..4: count 5 lies outside of it"),
      std::string::npos);
  EXPECT_NE(
      complaint("prefill:\n  - " + scaled).find("f.yaml:2: autoscale: 1..4: count 5 lies outside of it"),
      std::string::npos);
  EXPECT_NE(complaint("workers:\n  - {hardware: b200, autoscale: 3, args: x}\n")
                .find("f.yaml:2: autoscale 3: must be MIN..MAX"),
            std::string::npos);
  EXPECT_NE(complaint("[1, 2]").find("a mapping"), std::string::npos);
  EXPECT_NE(complaint("").find("is empty"), std::string::npos);
  EXPECT_NE(complaint("a: [").find("not valid YAML"), std::string::npos);
}

}  // namespace
}  // namespace tpsim::launch
