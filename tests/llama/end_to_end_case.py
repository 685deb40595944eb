"""What the end-to-end tests that are unittest cases share: program, servers, folders, stores."""

import argparse
import os
import sys
import unittest

from conversation import Conversation
from end_to_end import PROBABILITIES, work_folder
from environment import prepare
from kvarve import Kvarve, flags_of, server_flags
from server import Server


class EndToEnd(unittest.TestCase):
    """MODELS of a subclass are made before its tests run. PROGRAM and PATHS are set by main."""

    MODELS = ()
    PROGRAM, SERVER, PATHS = None, None, {}

    def setUp(self):
        temporary = work_folder(self.PATHS)
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.server = None

    def start(self, model):
        """The server; it ends with the test."""
        if self.server:
            self.server.stop()
        self.server = Server(self.SERVER, self.PATHS[model], self.folder, server_flags(model))
        self.addCleanup(self.server.stop)
        return self.server.start()

    def store(self, name, model=None, **more):
        """A store below the test's folder; with a model its identity is given by flags."""
        identity = flags_of(model, self.PATHS[model], **more) if model else None
        return Kvarve(self.PROGRAM, os.path.join(self.folder, name), identity)

    def conversation(self, plan):
        return Conversation(self.server, plan, probabilities=PROBABILITIES)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def write_tokens(self, tokens, name="tokens"):
        return self.write(name, "".join(f"{token}\n" for token in tokens).encode())

    def saved(self, name):
        """The slot as a file that stays."""
        self.server.save(name)
        return self.path(name)

    def assert_same(self, turn, reference):
        self.assertEqual(turn.text, reference.text)
        self.assertTrue(turn.same_answer(reference), "the log-probabilities differ")


def main(case):
    """Runs the tests of one class, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvarve", required=True, metavar="PROGRAM")
    parser.add_argument("tests", nargs="*")
    chosen = parser.parse_args()
    EndToEnd.PROGRAM = chosen.kvarve
    EndToEnd.SERVER, EndToEnd.PATHS = prepare(case.MODELS)
    names = [f"{case.__name__}.{test}" for test in chosen.tests] or [case.__name__]
    unittest.main(module=sys.modules["__main__"], argv=[sys.argv[0], *names], verbosity=2)
