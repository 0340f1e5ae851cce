"""Built-in callbacks: early stopping, the best model, a progress bar, two trackers.

They use only the public interface of callbacks, and import no part of a round.
"""
