#include "proto/base/stop_flag.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "proto/base/output_file.h"

namespace tpsim {
namespace {

// Each test is a process of its own: signals are the process's.

[[noreturn]] void ask_and_look(int number) {
  StopFlag::install();
  if (StopFlag::requested()) _exit(10);
  StopFlag::throw_if_requested();
  raise(number);
  if (!StopFlag::requested()) _exit(11);
  try {
    StopFlag::throw_if_requested();
  } catch (const Stopped&) {
    _exit(0);
  }
  _exit(12);
}

TEST(StopFlagDeathTest, SignalsAskToStop) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    EXPECT_EXIT(ask_and_look(number), ::testing::ExitedWithCode(0), "") << number;
}

[[noreturn]] void ask_in_vain(bool ignored_hangup) {
  if (ignored_hangup) signal(SIGHUP, SIG_IGN);
  StopFlag::install();
  raise(SIGHUP);
  if (!ignored_hangup) StopFlag::leave_to_process_0();
  raise(SIGHUP);
  _exit(StopFlag::requested() ? 10 : 0);
}

TEST(StopFlagDeathTest, SomeAreNotAsked) {
  EXPECT_EXIT(ask_in_vain(true), ::testing::ExitedWithCode(0), "") << "nohup";
  EXPECT_EXIT(ask_in_vain(false), ::testing::ExitedWithCode(0), "") << "a process that another one stops";
}

[[noreturn]] void never_look(const std::filesystem::path& folder, bool ask_twice) {
  StopFlag::install();
  std::optional<StopFlag::Writing> results;
  if (ask_twice) results.emplace();  // a second signal does not wait for them
  OutputFile file(folder / "a", "--output", OutputFile::kSmallGzip, OutputFile::Temporary::kNamed);
  raise(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  if (ask_twice) raise(SIGTERM);
  while (true) pause();
}

TEST(StopFlagDeathTest, WhoDoesNotLookIsEnded) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tpsim-stop-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const bool ask_twice : {false, true}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EXIT(never_look(folder, ask_twice), ::testing::ExitedWithCode(3), "ended by a signal");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 5) << "2 s, and a busy machine";
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "no temporary file";
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tpsim
