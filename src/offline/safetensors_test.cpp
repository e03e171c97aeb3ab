// What the reader refuses and what it says, the sets of files, the writer.
#include "octavo/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "offline/testing_files.hpp"

namespace octavo {
namespace {

using testing::assemble;
using ::testing::HasSubstr;
using testing::make_file;
using testing::TemporaryDirectory;

Result<SafetensorsFile> parse(const std::string& file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())), "x.st");
}
std::string refusal(const std::string& file) {
  const auto result = parse(file);
  return result ? "accepted" : result.error().message();
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr const char* one = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = assemble(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I8","shape":[],"data_offsets":[4,5]},)"
      R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}  )",
      "abcde");
  const auto read = parse(file);
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->tensors().size(), 2U);
  EXPECT_EQ(read->tensors()[0].name, "a");
  EXPECT_EQ(read->tensors()[0].type, StoredType::BF16);
  EXPECT_EQ(read->tensors()[0].shape, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(read->tensors()[1].shape, std::vector<std::uint64_t>{});
  EXPECT_EQ(read->metadata().at("format"), "pt");
  ASSERT_NE(read->find("b"), nullptr);
  EXPECT_EQ(read->bytes(*read->find("b"))[0], std::byte{'e'});
  EXPECT_EQ(read->find("c"), nullptr);
}

TEST(Safetensors, RefusalsNameFileAndTensor) {
  const std::string t = one;
  const auto tensor = [](std::string_view inside, std::string_view data) {
    return refusal(assemble("{\"w\":" + std::string(inside) + "}", data));
  };
  EXPECT_THAT(refusal(""), HasSubstr("x.st: expected a safetensors file of at least 8 bytes"));
  EXPECT_THAT(refusal(assemble("{}", "").substr(0, 9)), HasSubstr("the file is truncated"));
  EXPECT_THAT(refusal("\xff\xff\xff\xff\xff\xff\xff\xff{}"), HasSubstr("at most 100000000 bytes"));
  EXPECT_THAT(refusal(assemble("{\"w\":" + t, "abcd")), HasSubstr("expected JSON in the header"));
  EXPECT_THAT(refusal(assemble("{\"\xff\":" + t + "}", "abcd")), HasSubstr("expected JSON"));
  EXPECT_THAT(refusal(assemble("{\"w\":" + t + ",\"w\":" + t + "}", "abcd")),
              HasSubstr("tensor \"w\": expected one tensor of this name, got two"));
  EXPECT_THAT(refusal(assemble("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", "")),
              HasSubstr("one key \"a\" in __metadata__, got two"));
  EXPECT_THAT(refusal(assemble("{\"__metadata__\":{\"a\":1}}", "")), HasSubstr("expected strings"));
  EXPECT_THAT(
      refusal(assemble("{\"w\":" + t + "}", "abc")),
      HasSubstr("x.st: tensor \"w\": expected 4 bytes of data as the header says, got 3; the "
                "file is truncated"));
  EXPECT_THAT(refusal(assemble(R"({"a":)" + t +
                                   R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},)"
                                   R"("c":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
                               "abcde")),
              HasSubstr("tensor \"b\": expected 8 bytes of data"));
  EXPECT_THAT(refusal(assemble("{\"w\":" + t + "}", "abcde")), HasSubstr("too long"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[1,5]})", "abcde"),
              HasSubstr("x.st: tensor \"w\": expected its data at offset 0"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "abcdefgh"),
              HasSubstr("expected 4 bytes for shape [1] of F32, got 8"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[0],"data_offsets":[4,0]})", ""),
              HasSubstr("expected its end to follow its start"));
  EXPECT_THAT(tensor(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", "a"),
              HasSubstr("expected whole bytes, got shape [3] of F4"));
  EXPECT_THAT(tensor(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", ""),
              HasSubstr("fewer than 2^64 bits"));
  // As many elements as 64 bits can count, but not as many bits: 2^58 * 64 would be 0.
  EXPECT_THAT(tensor(R"({"dtype":"F64","shape":[288230376151711744],"data_offsets":[0,0]})", ""),
              HasSubstr("fewer than 2^64 bits"));
  EXPECT_THAT(tensor(R"({"dtype":"I4","shape":[2],"data_offsets":[0,1]})", "a"),
              HasSubstr("expected a dtype of the format, got \"I4\""));
  EXPECT_THAT(tensor(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", "a"),
              HasSubstr("got a negative number"));
  EXPECT_THAT(tensor(R"({"dtype":"U8","shape":[1]})", "a"), HasSubstr("got fewer"));
}

TEST(Safetensors, FieldsOfAnEntry) {
  const auto said = [](std::string_view inside, std::string_view data = "abcd") {
    return refusal(assemble("{\"w\":" + std::string(inside) + "}", data));
  };
  EXPECT_THAT(said(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})"),
              HasSubstr("expected two data_offsets, got more"));
  EXPECT_THAT(said(R"({"dtype":"U8","shape":[0],"data_offsets":[0]})", ""),
              HasSubstr("expected two data_offsets, got fewer"));
  EXPECT_THAT(said(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("duplicate key \"dtype\""));
  // Others are skipped, whatever is in them.
  EXPECT_EQ(said(R"({"x":{"y":[1,{"z":{}}],"dtype":"no"},"dtype":"F32","shape":[1],)"
                 R"("x":[[]],"data_offsets":[0,4],"more":null})"),
            "accepted");
  // The reference also takes a list of the three, and a type as an object.
  EXPECT_EQ(said(R"(["F32",[1],[0,4]])"), "accepted");
  EXPECT_EQ(said(R"([{"F32":null},[1],[0,4]])"), "accepted");
  EXPECT_THAT(said(R"(["F32",[1],[0,4],1])"), HasSubstr("expected a tensor's dtype"));
  EXPECT_THAT(said(R"(["F32",[1]])"), HasSubstr("got fewer"));
  EXPECT_THAT(said(R"({"dtype":{"F32":null,"U8":null},"shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("expected one type"));
  EXPECT_THAT(refusal(assemble("\xEF\xBB\xBF{}", "")), HasSubstr("got a byte order mark"));
  EXPECT_THAT(refusal(assemble(R"({"__metadata__":{},"__metadata__":{}})", "")),
              HasSubstr("duplicate key \"__metadata__\""));
}

// A tensor without elements may lie before one that has some, whatever their names are.
TEST(Safetensors, EmptyTensorsTakeNoRoom) {
  const std::string file = assemble("{\"a\":" + std::string(one) +
                                        R"(,"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                                        R"("c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                                    "abcd");
  ASSERT_EQ(refusal(file), "accepted");
  const auto read = parse(file);
  EXPECT_EQ(read->tensors()[0].name, "b");
  EXPECT_EQ(read->tensors()[1].name, "a");
}

TEST(Safetensors, MessagesStayShortAndPrintable) {
  const std::string name(100000, '\x7f');
  const std::string text = refusal(assemble("{\"" + name + "\":3}", ""));
  EXPECT_LT(text.size(), 1000U);
  EXPECT_THAT(text, HasSubstr("\\x7f"));
}

// Headers that are costly for a careless reader: quadratic in names, or deep, or wide.
TEST(Safetensors, HostileHeadersAreRefusedInLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  std::string same = "{";
  for (int i = 0; i < 100000; ++i) {
    same += "\"w\":";
    same += one;
    same += i + 1 < 100000 ? "," : "}";
  }
  EXPECT_THAT(refusal(assemble(same, "abcd")), HasSubstr("got two"));
  std::string many = "{";
  for (int i = 0; i < 100000; ++i) {
    many += "\"w";
    many += std::to_string(i);
    many += R"(":{"dtype":"F32","shape":[],"data_offsets":[0,4]})";
    many += i + 1 < 100000 ? "," : "}";
  }
  EXPECT_THAT(refusal(assemble(many, "abcd")), HasSubstr("an overlap"));
  EXPECT_THAT(refusal(assemble("{\"w\":" + std::string(5000000, '['), "")), HasSubstr("expected"));
  EXPECT_THAT(refusal(assemble(std::string(5000000, '{'), "")), HasSubstr("expected"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Safetensors, ViewsAreForPlans) {
  const auto of = [](std::string_view type, std::string_view shape, int bytes, int before) {
    std::string header = R"({"w":{"dtype":")" + std::string(type) + R"(","shape":)" +
                         std::string(shape) + R"(,"data_offsets":[0,)" + std::to_string(bytes) +
                         "]}}";
    header.resize((header.size() + 7) / 8 * 8 + static_cast<std::size_t>(before), ' ');
    return assemble(header, std::string(static_cast<std::size_t>(bytes), 'a'));
  };
  const std::string good = of("F32", "[2,3]", 24, 0);
  const auto file = parse(good);
  ASSERT_TRUE(file);
  const auto view = file->view(file->tensors()[0]);
  ASSERT_TRUE(view) << view.error().message();
  EXPECT_EQ(view->dtype, DType::f32);
  EXPECT_EQ(view->shape, (Shape{2, 3}));
  EXPECT_EQ(view->buffer_bytes, 24);
  const auto message = [&](const std::string& text) {
    const auto f = parse(text);
    const auto v = f->view(f->tensors()[0]);
    return v ? "accepted" : v.error().message();
  };
  EXPECT_THAT(message(of("I64", "[3]", 24, 0)), HasSubstr("got I64"));
  EXPECT_THAT(message(of("F32", "[1,1,1,1,1,1,1,1,1]", 4, 0)), HasSubstr("at most 8 dimensions"));
  EXPECT_THAT(message(of("F32", "[2]", 8, 1)), HasSubstr("aligned to 4 bytes"));
  EXPECT_THAT(message(of("F32", "[0,9223372036854775808]", 0, 0)), HasSubstr("below 2^63"));
}

TEST(SafetensorsSet, FindsFilesByIndexDirectoryOrName) {
  const TemporaryDirectory dir;
  const std::string a = assemble("{\"a\":" + std::string(one) + "}", "aaaa");
  const std::string b = assemble("{\"b\":" + std::string(one) + "}", "bbbb");
  make_file(dir / "model-00001-of-00002.safetensors", a);
  make_file(dir / "model-00002-of-00002.safetensors", b);
  make_file(dir / "other.txt", "");
  auto set = SafetensorsSet::open(dir.path());
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_EQ(set->files().size(), 2U);
  EXPECT_FALSE(set->indexed());
  ASSERT_TRUE(set->find("b"));
  EXPECT_EQ(set->find("b").file->bytes(*set->find("b").tensor)[0], std::byte{'b'});
  EXPECT_FALSE(set->find("c"));

  make_file(
      dir / "model.safetensors.index.json",
      R"({"metadata":{"total_size":4,"weight_map":[1]},"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  set = SafetensorsSet::open(dir.path());
  ASSERT_TRUE(set) << set.error().message();
  EXPECT_TRUE(set->indexed());
  EXPECT_EQ(set->files().size(), 1U);
  EXPECT_TRUE(SafetensorsSet::open(dir / "model.safetensors.index.json"));
  set = SafetensorsSet::open(dir / "model-00002-of-00002.safetensors");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->directory(), dir.path());
}

TEST(SafetensorsSet, Refusals) {
  const TemporaryDirectory dir;
  const auto message = [&](const std::filesystem::path& path) {
    const auto set = SafetensorsSet::open(path);
    return set ? "accepted" : set.error().message();
  };
  const auto index = [&](std::string_view text) {
    make_file(dir / "model.safetensors.index.json", text);
    return message(dir.path());
  };
  EXPECT_THAT(message(dir.path()), HasSubstr("expected .safetensors files"));
  EXPECT_THAT(message(dir / "none"), HasSubstr("none: cannot open"));
  make_file(dir / "a.safetensors", assemble("{\"a\":" + std::string(one) + "}", "aaaa"));
  make_file(dir / "b.safetensors", assemble("{\"a\":" + std::string(one) + "}", "aaaa"));
  EXPECT_THAT(message(dir.path()), HasSubstr("each tensor in one file only"));
  EXPECT_THAT(index("{"), HasSubstr("expected JSON"));
  EXPECT_THAT(index("{}"), HasSubstr("expected a weight_map"));
  EXPECT_THAT(index(R"({"weight_map":[]})"), HasSubstr("got an array"));
  EXPECT_THAT(index(R"({"weight_map":{"a":1}})"), HasSubstr("got a number"));
  EXPECT_THAT(index(R"({"weight_map":{"a":{}}})"), HasSubstr("got an object"));
  EXPECT_THAT(index(R"({"weight_map":{"a":"../a.safetensors"}})"), HasSubstr("beside the index"));
  EXPECT_THAT(index(R"({"weight_map":{"a":"c.safetensors"}})"), HasSubstr("cannot open"));
  EXPECT_THAT(index(R"({"weight_map":{"z":"a.safetensors"}})"), HasSubstr("it is in none"));
  EXPECT_THAT(index(R"({"weight_map":{"a":"a.safetensors","a":"a.safetensors"}})"),
              HasSubstr("got two"));
  EXPECT_THAT(index(R"({"weight_map":{"a":"a.safetensors"},"weight_map":{}})"),
              HasSubstr("expected one weight_map, got two"));
  make_file(dir / "b.safetensors", assemble("{\"b\":" + std::string(one) + "}", "bbbb"));
  EXPECT_EQ(index(R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})"), "accepted");
  EXPECT_THAT(index(R"({"weight_map":{"a":"b.safetensors","b":"a.safetensors"}})"),
              HasSubstr("expected it in \"b.safetensors\", as this index says; it is in another"));
}

TEST(SafetensorsWriter, SortsPadsAndAligns) {
  const TemporaryDirectory dir;
  const auto path = dir / "w.safetensors";
  auto writer = SafetensorsWriter::create(path,
                                          {{"b", StoredType::I8, {3}},
                                           {"z", StoredType::F64, {1}},
                                           {"c", StoredType::BF16, {2}},
                                           {"a\"\n", StoredType::I8, {1}}},
                                          {{"octavo", "1"}});
  ASSERT_TRUE(writer) << writer.error().message();
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->write("a\"\n", bytes_of("a")));
  std::thread other([&] { EXPECT_TRUE(writer->write("b", 1, bytes_of("cd"))); });
  ASSERT_TRUE(writer->write("b", 0, bytes_of("b")));
  other.join();
  ASSERT_TRUE(writer->write("c", bytes_of("1234")));
  EXPECT_THAT(writer->finish().error().message(), HasSubstr("expected 16 bytes of tensors, got 8"));
  ASSERT_TRUE(writer->write("z", bytes_of("12345678")));
  EXPECT_THAT(writer->write("y", bytes_of("")).error().message(), HasSubstr("was declared"));
  EXPECT_THAT(writer->write("b", 2, bytes_of("12")).error().message(), HasSubstr("within its 3"));
  EXPECT_THAT(writer->write("b", 4, bytes_of("1")).error().message(), HasSubstr("within its 3"));
  EXPECT_THAT(writer->write("b", bytes_of("12")).error().message(), HasSubstr("expected 3 bytes"));
  ASSERT_TRUE(writer->finish());
  EXPECT_THAT(writer->finish().error().message(), HasSubstr("that is not finished yet"));
  EXPECT_EQ(std::filesystem::file_size(path), writer->size());
  EXPECT_FALSE(std::filesystem::exists(dir / "w.safetensors.tmp"));
  const auto read = SafetensorsFile::open(path);
  ASSERT_TRUE(read) << read.error().message();
  std::vector<std::string> names;
  for (const auto& t : read->tensors()) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"z", "c", "a\"\n", "b"}));
  EXPECT_TRUE(read->view(*read->find("z")));
  EXPECT_EQ(read->metadata().at("octavo"), "1");
  const auto b = read->bytes(*read->find("b"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(b.data()), 3), "bcd");
  read->release(b);
}

TEST(SafetensorsWriter, RefusesAndLeavesNothing) {
  const TemporaryDirectory dir;
  const auto message = [&](std::vector<StoredTensorSpec> specs) {
    const auto w = SafetensorsWriter::create(dir / "w", std::move(specs));
    return w ? "accepted" : w.error().message();
  };
  EXPECT_THAT(message({{"a", StoredType::F4, {1}}}), HasSubstr("whole bytes"));
  EXPECT_THAT(message({{"a", StoredType::U8, {1}}, {"a", StoredType::U8, {1}}}),
              HasSubstr("got two"));
  // Each of them fits into a file, but not all together.
  constexpr std::uint64_t large = (std::uint64_t{1} << 61U) - 1;
  std::vector<StoredTensorSpec> specs;
  for (const char* name : {"a", "b", "c", "d", "e"})
    specs.push_back({name, StoredType::U8, {large}});
  EXPECT_THAT(message(specs), HasSubstr("tensor \"e\": expected a shape of whole bytes, fewer than "
                                        "2^63 in all"));
  EXPECT_THAT(message({{"__metadata__", StoredType::U8, {1}}}), HasSubstr("another name"));
  EXPECT_THAT(message({{"\xff", StoredType::U8, {1}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(SafetensorsWriter::create(dir / "no" / "w", {}).error().message(),
              HasSubstr("cannot create"));
  EXPECT_EQ(message({{"a", StoredType::U8, {1}}}), "accepted");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// A limit on the size of files stands for a full disk: the same call fails.
TEST(SafetensorsWriter, FullDiskIsAnErrorThatSaysSo) {
  const TemporaryDirectory dir;
  auto writer = SafetensorsWriter::create(dir / "w", {{"a", StoredType::U8, {1 << 20}}});
  ASSERT_TRUE(writer);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string data(1 << 20, 'a');
  const Status status = writer->write("a", bytes_of(data));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::backend);
  EXPECT_THAT(status.error().message(), HasSubstr("make room"));
}

}  // namespace
}  // namespace octavo
