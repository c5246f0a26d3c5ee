"""Signs that a finished training learned nothing: `Run.summary["warnings"]`, lines of `spml train`."""

from spml_core.words import count

FEW = 100  # batches; with fewer, a network may well have learned nothing yet


def training_warnings(fitted, first=None) -> list[str]:
    """Return warnings about a training, and about its first phase if there was one; empty if nothing is suspicious.

    Args:
        fitted, first: from `train.fit`.
    """
    phases = {"": fitted} if first is None else {"first phase: ": first, "": fitted}
    before, found = "the untrained network", []
    for where, phase in phases.items():
        rate = f"is the learning rate right (lr={phase.config.lr:g})?"
        start, *maps = (row["val_map"] for row in phase.history)
        if max(maps) <= start:
            short = len(maps) * len(phase.inputs) < FEW * phase.config.batch_size
            few = " Or was it too short?" if short else ""
            found.append(
                f"{where}validation mAP never rose above that of {before} ({start:.2f}; {max(maps):.2f} at best, in "
                f"{count(len(maps), 'epoch')}): {rate}{few}"
            )
        scores = phase.val_logits[phase.best_epoch]
        if len(scores) > 1 and (scores == scores[:1]).all():
            said = f"the network gives all {len(scores)} validation images the same scores: {rate}"
            found.append(where + said)
        before = "the first phase"
    return found
