// Runs that stop and are taken up again, bounded memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OCTAVO_SANITIZED 1
#endif
#endif

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::make_statistics;
using testing::read_tree;
using testing::TemporaryDirectory;

// Everything that an interrupted run needs: a checkpoint, a plan, a place.
struct Prepared {
  Prepared() {
    testing::make_llama(dir / "in");
    checkpoint.emplace(*Checkpoint::open(dir / "in"));
    plan.emplace(*resolve(*checkpoint, {}));
  }
  [[nodiscard]] Result<QuantizeReport> run(const fs::path& to,
                                           const ProgressCallback& progress = {}) const {
    return quantize(Stream::cpu({.threads = 1}), *plan, to, progress);
  }
  TemporaryDirectory dir;
  std::optional<Checkpoint> checkpoint;
  std::optional<QuantizePlan> plan;
};

TEST(QuantizeRun, RefusesToOverwrite) {
  const Prepared p;
  const auto refused = [&](const fs::path& to) {
    const auto report = p.run(to);
    return report ? "accepted" : report.error().message();
  };
  testing::make_file(p.dir / "full" / "x", "");
  EXPECT_THAT(refused(p.dir / "full"), HasSubstr("expected a new or empty directory"));
  EXPECT_THAT(refused(p.dir / "full" / "x"), HasSubstr("expected a new or empty directory"));
  fs::create_directory(p.dir / "empty");
  fs::create_directory_symlink(p.dir / "empty", p.dir / "link");
  EXPECT_THAT(refused(p.dir / "link"), HasSubstr("expected a new or empty directory"));
  EXPECT_TRUE(p.run(p.dir / "empty/"));
  EXPECT_TRUE(fs::exists(p.dir / "empty" / "config.json"));
  EXPECT_THAT(refused(p.dir / "empty"), HasSubstr("expected a new or empty directory"));
}

// Whatever names the input, by whatever way, is left alone.
TEST(QuantizeRun, NeverTouchesTheInput) {
  const Prepared p;
  const auto before = read_tree(p.dir / "in");
  fs::create_directory_symlink(p.dir / "in", p.dir / "link");
  for (const char* to : {"in", "in/", "in/out", "in/a/b", "link", "link/out", "x/../in", "./in/."})
    EXPECT_THAT(p.run(p.dir / to).error().message(), HasSubstr("outside the input's")) << to;
  EXPECT_EQ(read_tree(p.dir / "in"), before);

  // OUT.partial is the input, or was made by someone else.
  fs::rename(p.dir / "in", p.dir / "model.partial");
  const auto moved = Checkpoint::open(p.dir / "model.partial");
  ASSERT_TRUE(moved);
  const auto plan = resolve(*moved, {});
  const auto refused = quantize(Stream::cpu(), *plan, p.dir / "model");
  EXPECT_THAT(refused.error().message(), HasSubstr("outside the input's"));
  EXPECT_EQ(read_tree(p.dir / "model.partial"), before);
  testing::make_file(p.dir / "other.partial" / "thesis.txt", "years of work");
  EXPECT_THAT(p.run(p.dir / "other").error().message(), HasSubstr("left by an earlier run"));
  EXPECT_TRUE(fs::exists(p.dir / "other.partial" / "thesis.txt"));
}

TEST(QuantizeRun, IsTakenBackIfStoppedAfterTheRename) {
  const Prepared p;
  ASSERT_TRUE(p.run(p.dir / "whole"));
  std::string mark;
  const auto stopped = p.run(p.dir / "out", [&](const Progress&) {
    std::ifstream in(p.dir / "out.partial" / ".octavo-run");
    mark.assign(std::istreambuf_iterator<char>(in), {});
  });
  ASSERT_TRUE(stopped);
  ASSERT_FALSE(mark.empty());
  testing::make_file(p.dir / "out" / ".octavo-run", mark);
  const auto again = p.run(p.dir / "out");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->shards_kept, 2);
  EXPECT_EQ(read_tree(p.dir / "out"), read_tree(p.dir / "whole"));
}

// Killed in the second shard: nothing under the final name; the next run keeps the first shard and
// ends with the same bytes.
TEST(QuantizeRun, IsTakenUpAgainAfterAKill) {
  const Prepared p;
  ASSERT_TRUE(p.run(p.dir / "whole"));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto ignored = p.run(p.dir / "out", [](const Progress& progress) {
      if (progress.what.starts_with("model-00002")) ::kill(::getpid(), SIGKILL);
    });
    ::_exit(ignored ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(p.dir / "out"));
  ASSERT_TRUE(fs::exists(p.dir / "out.partial" / "model-00001-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(p.dir / "out.partial" / "model-00002-of-00002.safetensors"));

  // Another run with other options does not take it for its own.
  const auto other = p.run(p.dir / "out");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(other->shards_kept, 1);
  EXPECT_EQ(read_tree(p.dir / "out"), read_tree(p.dir / "whole"));
  EXPECT_FALSE(fs::exists(p.dir / "out.partial"));
}

TEST(QuantizeRun, DoesNotTakeUpAnotherRun) {
  const Prepared p;
  int calls = 0;
  const auto stopped = p.run(p.dir / "out", [&](const Progress& progress) {
    if (progress.what.starts_with("model-00002") && ++calls > 0) throw std::runtime_error("stop");
  });
  ASSERT_FALSE(stopped);
  EXPECT_THAT(stopped.error().message(), HasSubstr("stop"));
  const auto plan = resolve(*p.checkpoint, {.ignore = {"*.down_proj"}});
  ASSERT_TRUE(plan);
  const auto report = quantize(Stream::cpu({.threads = 1}), *plan, p.dir / "out");
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->shards_kept, 0);
}

// Whatever the result depends on: with other numbers or another input it is another run.
TEST(QuantizeRun, IsTakenUpAgainOnlyIfNothingHasChanged) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "in");
  const auto kept_by_another = [&](double alpha, std::int64_t rows, bool with_statistics = true) {
    const auto checkpoint = Checkpoint::open(dir / "in");
    const Statistics statistics = make_statistics(*checkpoint, rows);
    const auto plan = resolve(*checkpoint, {.statistics = with_statistics ? &statistics : nullptr,
                                            .smooth = with_statistics,
                                            .alpha = alpha});
    const auto report = quantize(Stream::cpu({.threads = 1}), *plan, dir / "out");
    EXPECT_TRUE(report) << report.error().message();
    fs::remove_all(dir / "out");
    return report->shards_kept;
  };
  const auto stop = [&] {
    const auto checkpoint = Checkpoint::open(dir / "in");
    const Statistics statistics = make_statistics(*checkpoint, 12);
    const auto plan =
        resolve(*checkpoint, {.statistics = &statistics, .smooth = true, .alpha = 0.5});
    EXPECT_FALSE(quantize(Stream::cpu({.threads = 1}), *plan, dir / "out", [](const auto& p) {
      if (p.what.starts_with("model-00002")) throw std::runtime_error("stop");
    }));
  };
  stop();
  EXPECT_EQ(kept_by_another(0.5, 12), 1);
  stop();
  EXPECT_EQ(kept_by_another(0.6, 12), 0) << "alpha";
  stop();
  EXPECT_EQ(kept_by_another(0.5, 11), 0) << "statistics";
  stop();
  EXPECT_EQ(kept_by_another(0.5, 12, false), 0) << "smoothing";
  stop();
  const fs::path shard = dir / "in" / "model-00001-of-00002.safetensors";
  fs::last_write_time(shard, fs::last_write_time(shard) + std::chrono::seconds(1));
  EXPECT_EQ(kept_by_another(0.5, 12), 0) << "weights";
  stop();
  testing::make_file(dir / "in" / "config.json", R"({"model_type": "llama", "hidden_size": 33})");
  EXPECT_EQ(kept_by_another(0.5, 12), 0) << "config.json";
}

// All bytes of the input are told, in one go or taken up again, and the output's are counted.
TEST(QuantizeRun, ProgressEndsWhenAllIsDone) {
  const TemporaryDirectory dir;
  testing::make_llama(dir / "llama");
  testing::make_gpt2(dir / "gpt2");
  int made = 0;
  for (const char* model : {"llama", "gpt2"})
    for (const Scheme scheme : {Scheme::w8a8_dynamic, Scheme::w4a16_group})
      for (const bool stopped : {false, true}) {
        const auto in = Checkpoint::open(dir / model);
        const Statistics statistics = make_statistics(*in);
        const auto plan = resolve(
            *in, {.scheme = scheme, .group_size = 8, .statistics = &statistics, .smooth = true});
        ASSERT_TRUE(plan) << plan.error().message();
        const fs::path out = dir / std::to_string(made++);
        Progress last;
        const auto tell = [&](const Progress& progress) {
          if (progress.what == "smoothing scales") return;
          EXPECT_GE(progress.done, last.done);
          last = progress;
        };
        if (stopped) {
          EXPECT_FALSE(quantize(Stream::cpu({.threads = 1}), *plan, out, [](const auto& p) {
            if (p.what.starts_with("model-00002") || p.done == p.total)
              throw std::runtime_error("stop");
          }));
        }
        const auto report = quantize(Stream::cpu({.threads = 1}), *plan, out, tell);
        ASSERT_TRUE(report) << report.error().message();
        EXPECT_EQ(report->shards_kept, stopped && model[0] == 'l' ? 1 : 0);
        std::uint64_t read = 0, written = 0, stored = 0;
        for (const SafetensorsFile& file : in->tensors().files())
          for (const StoredTensor& t : file.tensors()) read += t.size();
        const auto result = Checkpoint::open(out);
        for (const SafetensorsFile& file : result->tensors().files()) {
          written += file.size();
          for (const StoredTensor& t : file.tensors()) stored += t.size();
        }
        EXPECT_EQ(last.done, read) << model << " " << name(scheme);
        EXPECT_EQ(last.total, read);
        EXPECT_EQ(report->bytes_written, written);
        EXPECT_EQ(plan->output_bytes, stored);
      }
}

// Files without an index get one, and a file that has only an empty tensor is written, too.
TEST(QuantizeRun, SeveralFilesGetAnIndex) {
  const TemporaryDirectory dir;
  testing::make_safetensors(dir / "in" / "a.safetensors", {{"a.weight", {8, 8}}});
  testing::make_safetensors(dir / "in" / "b.safetensors", {{"b", {0}}});
  const auto in = Checkpoint::open(dir / "in");
  const auto plan = resolve(*in, {});
  const auto report = quantize(Stream::cpu(), *plan, dir / "out");
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(fs::exists(dir / "out" / "model.safetensors.index.json"));
  const auto out = Checkpoint::open(dir / "out");
  ASSERT_TRUE(out) << out.error().message();
  EXPECT_TRUE(out->tensors().indexed());
  EXPECT_EQ(out->tensors().files().size(), 2U);
  EXPECT_TRUE(out->tensors().find("b"));
}

// The mark of the other run, which is longer, is gone as well.
TEST(QuantizeRun, IsTakenUpAgainThoughItReplacedAnother) {
  const Prepared p;
  const auto stop = [](const Progress& progress) {
    if (progress.what.starts_with("model-00002")) throw std::runtime_error("stop");
  };
  const auto other = resolve(*p.checkpoint, {.ignore = {"*.down_proj", "lm_head"}});
  ASSERT_TRUE(other);
  ASSERT_FALSE(quantize(Stream::cpu({.threads = 1}), *other, p.dir / "out", stop));
  ASSERT_FALSE(p.run(p.dir / "out", stop));
  const auto report = p.run(p.dir / "out");
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->shards_kept, 1);
}

TEST(QuantizeRun, AFullDiskLosesNothing) {
  const Prepared p;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto full = p.run(p.dir / "out");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), ErrorCode::backend);
  EXPECT_THAT(full.error().message(), HasSubstr("model-00001-of-00002.safetensors: cannot write"));
  EXPECT_THAT(full.error().message(), HasSubstr("make room and run again"));
  EXPECT_FALSE(fs::exists(p.dir / "out"));
  EXPECT_TRUE(p.run(p.dir / "out"));
}

// Three layers that read one norm, 384 MiB of zeros that take no room on the disk.
void make_sparse_llama(const fs::path& directory) {
  const std::string block = "model.layers.0.";
  std::string header = fmt::format(
      R"({{"{}input_layernorm.weight":{{"dtype":"BF16","shape":[8192],"data_offsets":[0,16384]}})",
      block);
  std::uint64_t end = 16384;
  for (const char* name : {"q", "k", "v"}) {
    header += fmt::format(
        R"(,"{}self_attn.{}_proj.weight":{{"dtype":"BF16","shape":[8192,8192],"data_offsets":[{},{}]}})",
        block, name, end, end + 134217728);
    end += 134217728;
  }
  header += "}";
  testing::make_file(directory / "m.safetensors", testing::assemble(header, ""));
  fs::resize_file(directory / "m.safetensors", 8 + header.size() + end);
  testing::make_file(directory / "config.json", R"({"model_type":"llama"})");
}

// In a process of its own, with so many MiB for data. (Mapped files are not counted, and need not
// be: the system drops their pages when it likes.)
int exit_code_with_little_memory(std::uint64_t mebibytes, int threads, const fs::path& in,
                                 const QuantizeOptions& options, const fs::path& out) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{mebibytes << 20U, mebibytes << 20U};
    if (::setrlimit(RLIMIT_DATA, &limit) != 0) ::_exit(2);
    const auto checkpoint = Checkpoint::open(in);
    if (!checkpoint) ::_exit(3);
    const auto plan = resolve(*checkpoint, options);
    if (!plan) ::_exit(4);
    ::_exit(quantize(Stream::cpu({.threads = threads}), *plan, out) ? 0 : 5);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The same test in a process that has run no other: what those leave behind would count as well.
void run_alone() {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      fmt::format("--gtest_filter={}.{}", test.test_suite_name(), test.name());
  const pid_t child = ::fork();
  if (child == 0) {
    // (It is no shard of all tests, and the report is the parent's.)
    for (const char* name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE",
                             "GTEST_OUTPUT", "XML_OUTPUT_FILE"})
      ::unsetenv(name);
    ::execl("/proc/self/exe", "checkpoint_test", filter.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(QuantizeRun, NeedsLittleMemory) {
#ifdef OCTAVO_SANITIZED
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  if (std::getenv("OCTAVO_EMULATED") != nullptr) GTEST_SKIP() << "the emulator's own memory counts";
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 1) return run_alone();
  const TemporaryDirectory dir;
  make_sparse_llama(dir / "in");
  const auto checkpoint = Checkpoint::open(dir / "in");
  ASSERT_TRUE(checkpoint);
  const Statistics statistics = make_statistics(*checkpoint);
  const QuantizeOptions plain;
  const QuantizeOptions searched{
      .scheme = Scheme::w8a8_static, .statistics = &statistics, .smooth = true, .alpha = {}};
  for (const QuantizeOptions* options : {&plain, &searched})
    for (const int threads : {1, 4}) {
      // A thread has a stack of 8 MiB.
      const std::uint64_t limit = 48 + 16 * static_cast<std::uint64_t>(threads - 1);
      const fs::path out = dir / fmt::format("out {} {}", name(options->scheme), threads);
      EXPECT_EQ(exit_code_with_little_memory(limit, threads, dir / "in", *options, out), 0)
          << name(options->scheme) << ", " << threads << " threads";
      EXPECT_GT(fs::file_size(out / "m.safetensors"), std::uint64_t{3} * 8192 * 8192);
    }
}

}  // namespace
}  // namespace octavo
