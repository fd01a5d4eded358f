#include "daemon/control/job_key_variable.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace copper {
namespace {

// The process's environment is these strings alone, which lie where a test can look at them.
class JobKeyVariable : public testing::Test {
  protected:
    ~JobKeyVariable() override { environ = before_; }

    void set(std::vector<std::string> variables) {
        strings_ = std::move(variables);
        pointers_.clear();
        for (auto& text : strings_) {
            pointers_.push_back(text.data());
        }
        pointers_.push_back(nullptr);
        environ = pointers_.data();
    }
    std::string memory() const {
        std::string all;
        for (const auto& text : strings_) {
            all += text + '\n';
        }
        return all;
    }

    std::vector<std::string> strings_;

  private:
    char** const before_ = environ;
    std::vector<char*> pointers_;
};

TEST_F(JobKeyVariable, IsTakenAndWipedWhereverItStands) {
    const std::string text = JobKey::random().text();
    set({"A=b", std::string(job_key_variable) + "=" + text, "LIST=x=" + text + ";y=" + text, "Z=z"});
    const auto key = take_job_key();
    ASSERT_TRUE(key && *key);
    EXPECT_EQ((*key)->text(), text);
    EXPECT_EQ(std::getenv(job_key_variable), nullptr);
    EXPECT_EQ(memory().find(text), std::string::npos);
    EXPECT_STREQ(std::getenv("A"), "b");
    EXPECT_STREQ(std::getenv("Z"), "z");
    EXPECT_TRUE(check_job_key(key, KeyNeed::required));

    const auto again = take_job_key();
    ASSERT_TRUE(again);
    EXPECT_FALSE(*again);
}

TEST_F(JobKeyVariable, MayBeMissingWhereNobodySaysThatThereIsOne) {
    set({"A=b"});
    const auto key = take_job_key();
    EXPECT_TRUE(check_job_key(key, KeyNeed::optional));
    const auto refused = check_job_key(key, KeyNeed::required);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().find(job_key_variable), std::string::npos);
}

TEST_F(JobKeyVariable, WhatIsNoKeyIsAnErrorThatDoesNotShowIt) {
    for (const std::string& wrong :
         {std::string(""), std::string("secret?"), JobKey::random().text() + "0"}) {
        set({std::string(job_key_variable) + "=" + wrong});
        const auto key = take_job_key();
        ASSERT_FALSE(key);
        EXPECT_TRUE(wrong.empty() || key.error().find(wrong) == std::string::npos);
        EXPECT_TRUE(wrong.empty() || memory().find(wrong) == std::string::npos);
        EXPECT_EQ(std::getenv(job_key_variable), nullptr);
        EXPECT_FALSE(check_job_key(key, KeyNeed::optional));
    }
}

}  // namespace
}  // namespace copper
