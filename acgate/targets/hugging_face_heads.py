"""Which class of transformers a configuration asks for, and what that class is trained for."""

from __future__ import annotations

import enum
import importlib.util
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError, message_of
from acgate.spec.explain import did_you_mean
from acgate.targets.hugging_face_draws import configurations
from acgate.targets.hugging_face_image_text import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


class Task(enum.Enum):
    """What a head is trained for, and so which inputs it takes; the value is for reports."""

    SEQ_TO_SEQ = "text to text"
    SPEECH_SEQ_TO_SEQ = "speech to text"
    MASKED_LM = "masked language modelling"
    IMAGE_CLASSIFICATION = "image classification"
    CTC = "speech recognition with CTC"
    IMAGE_TEXT = "text after an image"
    IMAGE_TO_TEXT = "image to text"
    TEXT_ONLY = "text after images or sounds, fed with text only"
    CAUSAL_LM = "causal language modelling"
    SEQUENCE_CLASSIFICATION = "classification of texts"
    TOKEN_CLASSIFICATION = "classification of tokens"  # noqa: S105  # no password
    QUESTION_ANSWERING = "extractive question answering"
    MULTIPLE_CHOICE = "multiple choice"
    NEXT_SENTENCE = "next sentence prediction"
    AUDIO_CLASSIFICATION = "audio classification"
    AUDIO_FRAMES = "classification of audio frames"
    VIDEO_CLASSIFICATION = "video classification"
    SEGMENTATION = "semantic segmentation"
    UNIVERSAL_SEGMENTATION = "universal segmentation"
    DETECTION = "object detection"
    CONTRASTIVE = "matching of pairs"
    MASKED_IMAGES = "masked image modelling"
    OUTPUTS = "no loss of its own"


# In the order in which a head is chosen where the configuration names none: BERT has a causal head too.
_HEADS = (
    (Task.SPEECH_SEQ_TO_SEQ, "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING"),
    (Task.TEXT_ONLY, "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
    (Task.SEQ_TO_SEQ, "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    (Task.MASKED_LM, "MODEL_FOR_MASKED_LM_MAPPING"),
    (Task.IMAGE_CLASSIFICATION, "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
    (Task.CTC, "MODEL_FOR_CTC_MAPPING"),
    (Task.CAUSAL_LM, "MODEL_FOR_CAUSAL_LM_MAPPING"),
    (Task.SEQUENCE_CLASSIFICATION, "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING"),
    (Task.TOKEN_CLASSIFICATION, "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING"),
    (Task.QUESTION_ANSWERING, "MODEL_FOR_QUESTION_ANSWERING_MAPPING"),
    (Task.MULTIPLE_CHOICE, "MODEL_FOR_MULTIPLE_CHOICE_MAPPING"),
    (Task.NEXT_SENTENCE, "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING"),
    (Task.AUDIO_CLASSIFICATION, "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING"),
    (Task.AUDIO_FRAMES, "MODEL_FOR_AUDIO_FRAME_CLASSIFICATION_MAPPING"),
    (Task.VIDEO_CLASSIFICATION, "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING"),
    (Task.DETECTION, "MODEL_FOR_OBJECT_DETECTION_MAPPING"),
    (Task.SEGMENTATION, "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING"),
    (Task.UNIVERSAL_SEGMENTATION, "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING"),
    (Task.CONTRASTIVE, "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING"),
    (Task.MASKED_IMAGES, "MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING"),
    (Task.OUTPUTS, "MODEL_FOR_PRETRAINING_MAPPING"),
    (Task.OUTPUTS, "MODEL_MAPPING"),
)
# By what a head must take for transformers to compute its loss; all others take `labels`.
_LABELS = {
    Task.QUESTION_ANSWERING: "start_positions",
    Task.CONTRASTIVE: "return_loss",
    Task.UNIVERSAL_SEGMENTATION: "class_labels",
    Task.MASKED_IMAGES: "bool_masked_pos",
}


_ASSIGNED = {Task.DETECTION, Task.UNIVERSAL_SEGMENTATION}
"""Their losses assign predictions to objects, for which transformers needs scipy."""
_UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Head:
    """A class of transformers with its task.

    Attributes:
        model_class: The class, a `PreTrainedModel`.
        task: What it is trained for.
        parameters: Names of the parameters of its forward.
        required: Those that the class needs as inputs: without a default, or its main ones.
    """

    model_class: Any
    task: Task
    parameters: frozenset[str]
    required: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Name of the class."""
        return str(self.model_class.__name__)


def choose_head(transformers: ModuleType, config: Any, source: str) -> Head:
    """Return the class that the configuration names, or its model type's usual head.

    Raises:
        TargetError: The named class is not of this model type, or the type has no model at all.
    """
    known = tuple(_known(transformers, config, source))
    # A model without a head; its output has no loss, so its type's usual head is taken where there is one.
    bare = {model_class.__name__ for model_class, task in known if task is Task.OUTPUTS}
    named = (config.architectures or (None,))[0]
    for name in config.architectures or ():
        for model_class, task in known:
            if model_class.__name__ == name and task is not Task.OUTPUTS:
                return _head(model_class, task)
        other = getattr(transformers, name, None)
        wanted = getattr(other, "config_class", None)
        ours = wanted is not None and any(type(part) is wanted for part in configurations(config))
        if ours and not (name in bare and name.endswith("Model")):
            return _head(other, Task.OUTPUTS)
    if known and (named is None or named in bare):
        return _head(*known[0])
    names = [model_class.__name__ for model_class, _ in known]
    raise TargetError(
        f"{source}: acgate has no inputs for {named or config.model_type}"
        f"{did_you_mean(named or config.model_type, names)};"
        " load the model in a Python file with its own batches and give that as target"
    )


def configuration_of(head: Head, config: Any) -> Any:
    """Return the configuration that a class is made with: a part, where it is one part of a larger model."""
    wanted = head.model_class.config_class
    return next((part for part in configurations(config) if type(part) is wanted), config)


def _head(model_class: Any, task: Task) -> Head:
    parameters = inspect.signature(model_class.forward).parameters
    if task is not Task.OUTPUTS and _LABELS.get(task, "labels") not in parameters:
        task = Task.OUTPUTS
    if task in _ASSIGNED and importlib.util.find_spec("scipy") is None:
        task = Task.OUTPUTS
    main = model_class.main_input_name
    if (task is Task.SPEECH_SEQ_TO_SEQ and main == "input_ids") or (
        task is Task.SEQ_TO_SEQ and "decoder_input_ids" not in parameters
    ):
        task = Task.TEXT_ONLY  # a language model that may be given sounds
    required = {
        name for name, one in parameters.items() if one.default is one.empty and one.kind not in _UNNAMED
    }
    if task is Task.TEXT_ONLY and model_class.config_class.model_type in FAMILIES:
        task = Task.IMAGE_TEXT
    if task is Task.TEXT_ONLY and "input_ids" not in parameters and "pixel_values" in parameters:
        task = Task.IMAGE_TO_TEXT
    required |= {main} if isinstance(main, str) else set(main)
    return Head(model_class, task, frozenset(parameters), frozenset(required - {"self"}))


def _known(transformers: ModuleType, config: Any, source: str) -> Iterator[tuple[Any, Task]]:
    for task, mapping in _HEADS:
        try:
            # A version may lack a mapping; a task without models is then all that is lost.
            found = getattr(transformers, mapping, {}).get(type(config), ())
        except ImportError as error:
            raise TargetError(f"{source}: transformers cannot load a class: {message_of(error)}") from error
        for model_class in found if isinstance(found, list | tuple) else (found,):
            yield model_class, task
