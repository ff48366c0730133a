// Something to do later, with what it takes. (As std::function, whose header alone takes half as long to read as the rest.)
#pragma once

template <class R> class emulated_call
{
    struct kept {
        unsigned n_owners = 1;
        virtual R run() = 0;
        virtual ~kept() {}
    };
    template <class F> struct kept_as : kept {
        F what;
        kept_as(const F &other) : what(other) {}
        R run() override { return what(); }
    };
    kept *it = nullptr;

  public:
    emulated_call() = default;
    emulated_call(decltype(nullptr)) {}
    template <class F> emulated_call(const F &what) : it(new kept_as<F>(what)) {}
    emulated_call(const emulated_call &other) : it(other.it)
    {
        if (it) {
            it->n_owners++;
        }
    }
    emulated_call &operator=(emulated_call other)
    {
        kept *mine = it;
        it = other.it;
        other.it = mine;
        return *this;
    }
    ~emulated_call()
    {
        if (it && --it->n_owners == 0) {
            delete it;
        }
    }
    explicit operator bool() const { return it; }
    R operator()() const { return it->run(); }
};
