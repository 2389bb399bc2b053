"""Budget, archive, levers and executor."""
