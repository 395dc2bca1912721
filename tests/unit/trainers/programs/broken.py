"""A program whose own import fails."""

import a_module_that_is_not_here


def main():
    a_module_that_is_not_here.train()
