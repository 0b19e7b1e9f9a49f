"""For programs without a loader: a function's first results, served again and again."""

from functools import wraps


def again(count):
    """Decorates a function that makes batches: after `count` calls, these results come again."""

    def decorate(function):
        made = []
        calls = [0]

        @wraps(function)
        def cached(*args, **kwargs):
            calls[0] += 1
            if len(made) < count:
                made.append(function(*args, **kwargs))
                return made[-1]
            return made[calls[0] % count]

        return cached

    return decorate
