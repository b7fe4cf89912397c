// Every error is caught as itself, as cistern::Error, as its standard base and as std::exception.

#include "cistern/error.hpp"

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace cistern::test {

namespace {

/// What `Caught` says when `Thrown` flies; empty if it does not catch it.
template <class Caught, class Thrown>
std::string caught_as(const char* text) {
    try {
        try {
            throw Thrown(text);
        } catch (const Caught& error) {
            return error.what();
        }
    } catch (...) {
        return "(not caught)";
    }
}

template <class Thrown, class Base>
void expect_caught_everywhere() {
    EXPECT_EQ((caught_as<Thrown, Thrown>("text")), "text");
    EXPECT_EQ((caught_as<Error, Thrown>("text")), "text");
    EXPECT_EQ((caught_as<Base, Thrown>("text")), "text");
    EXPECT_EQ((caught_as<std::exception, Thrown>("text")), "text");
    static_assert(std::is_nothrow_copy_constructible_v<Thrown>);
}

}  // namespace

TEST(Errors, OutOfMemoryIsABadAlloc) { expect_caught_everywhere<OutOfMemory, std::bad_alloc>(); }

TEST(Errors, InvalidArgumentIsAnInvalidArgument) {
    expect_caught_everywhere<InvalidArgument, std::invalid_argument>();
    expect_caught_everywhere<InvalidArgument, std::logic_error>();
}

TEST(Errors, UnavailableIsARuntimeError) {
    expect_caught_everywhere<Unavailable, std::runtime_error>();
}

TEST(Errors, DeviceErrorIsARuntimeError) {
    expect_caught_everywhere<DeviceError, std::runtime_error>();
}

TEST(Errors, AreToldApart) {
    EXPECT_EQ((caught_as<OutOfMemory, InvalidArgument>("text")), "(not caught)");
    EXPECT_EQ((caught_as<Unavailable, DeviceError>("text")), "(not caught)");
}

TEST(Errors, KeepTheirTextWhenCopied) {
    const auto original = std::make_unique<OutOfMemory>("out of memory: 64 KiB asked for");

    const OutOfMemory copy = *original;

    EXPECT_STREQ(copy.what(), original->what());
}

}  // namespace cistern::test
