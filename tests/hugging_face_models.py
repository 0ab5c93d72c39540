"""Tiny models of transformers: their settings, and what each is to be fed with."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
LORA = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.2,
    "target_modules": ["q_proj", "v_proj"],
    "inference_mode": True,  # as peft saves it
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
    "encoder_stride": 8,
}
BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
SPEECH = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "conv_dim": [32, 32],
    "conv_stride": [10, 4],
    "conv_kernel": [10, 4],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "pad_token_id": 0,
    "mask_time_length": 4,
}
PAIR = {
    "text_config": TEXT | {"projection_dim": 16},
    "vision_config": {name: value for name, value in VISION.items() if name != "encoder_stride"},
    "projection_dim": 16,
}
WHISPER = BART | {"num_mel_bins": 8, "max_source_positions": 24, "max_target_positions": 40}
LLAVA = {
    "text_config": TEXT | {"model_type": "llama", "num_key_value_heads": 2},
    "vision_config": {"model_type": "clip_vision_model"} | PAIR["vision_config"],
    "image_token_id": 60,
    "image_token_index": 60,
}
# Class, configuration, what it is told to be, and the shapes of its inputs in the bucket `short`.
HEADS: list[tuple[str, str, dict[str, Any], str, dict[str, tuple[int, ...]]]] = [
    (
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        SPEECH,
        "speech recognition with CTC",
        {"input_values": (2, 640), "labels": (2, 4)},
    ),
    ("HubertForCTC", "HubertConfig", SPEECH, "speech recognition with CTC", {"input_values": (2, 640)}),
    (
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        SPEECH,
        "audio classification",
        {"input_values": (2, 640), "labels": (2,)},
    ),
    (
        "Wav2Vec2ForAudioFrameClassification",
        "Wav2Vec2Config",
        SPEECH,
        "classification of audio frames",
        {"labels": (2, 16, 2)},
    ),
    (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        WHISPER,
        "speech to text",
        {"input_features": (2, 8, 48), "labels": (2, 16), "decoder_input_ids": (2, 16)},
    ),
    (
        "ASTForAudioClassification",
        "ASTConfig",
        {name: value for name, value in VISION.items() if name not in {"image_size", "encoder_stride"}}
        | {"num_mel_bins": 16, "max_length": 24, "frequency_stride": 8, "time_stride": 8},
        "audio classification",
        {"input_values": (2, 24, 16)},
    ),
    (
        "CLIPModel",
        "CLIPConfig",
        PAIR,
        "matching of pairs",
        {"input_ids": (2, 16), "pixel_values": (2, 3, 16, 16)},
    ),
    (
        "CLIPForImageClassification",
        "CLIPConfig",
        PAIR,
        "image classification",
        {"pixel_values": (2, 3, 16, 16)},
    ),
    (
        "ViTForMaskedImageModeling",
        "ViTConfig",
        VISION,
        "masked image modelling",
        {"bool_masked_pos": (2, 4)},
    ),
    (
        "VideoMAEForVideoClassification",
        "VideoMAEConfig",
        VISION | {"num_frames": 4, "tubelet_size": 2},
        "video classification",
        {"pixel_values": (2, 4, 3, 16, 16)},
    ),
    (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {
            "num_encoder_blocks": 2,
            "depths": [2, 2],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [2, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        "semantic segmentation",
        {"labels": (2, 64, 64)},
    ),
    (
        "BertForQuestionAnswering",
        "BertConfig",
        TEXT,
        "extractive question answering",
        {"start_positions": (2,), "end_positions": (2,)},
    ),
    (
        "BartForQuestionAnswering",
        "BartConfig",
        BART,
        "extractive question answering",
        {"input_ids": (2, 16), "start_positions": (2,)},
    ),
    (
        "BartForSequenceClassification",
        "BartConfig",
        BART,
        "classification of texts",
        {"input_ids": (2, 16), "labels": (2,)},
    ),
    ("BertForMultipleChoice", "BertConfig", TEXT, "multiple choice", {"input_ids": (2, 2, 16)}),
    (
        "BertForNextSentencePrediction",
        "BertConfig",
        TEXT,
        "next sentence prediction",
        {"input_ids": (2, 16), "labels": (2,)},
    ),
    (
        "LlavaNextForConditionalGeneration",
        "LlavaNextConfig",
        LLAVA,
        "text after images or sounds, fed with text only",
        {"input_ids": (2, 16), "labels": (2, 16)},
    ),
    (
        "VisionEncoderDecoderModel",
        "VisionEncoderDecoderConfig",
        {
            "encoder": VISION | {"model_type": "vit"},
            "decoder": TEXT | {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
            "pad_token_id": 0,
            "decoder_start_token_id": 1,
        },
        "image to text",
        {"pixel_values": (2, 3, 16, 16), "labels": (2, 16), "decoder_input_ids": (2, 16)},
    ),
    (
        "YolosForObjectDetection",
        "YolosConfig",
        VISION | {"image_size": [16, 24], "num_detection_tokens": 5},
        "object detection" if importlib.util.find_spec("scipy") else "no loss of its own",
        {"pixel_values": (2, 3, 16, 24)},
    ),
    (
        "FNetForMaskedLM",
        "FNetConfig",
        {name: value for name, value in TEXT.items() if name != "num_attention_heads"},
        "masked language modelling",
        {"input_ids": (2, 16)},
    ),
    (
        "CLIPVisionModel",
        "CLIPVisionConfig",
        PAIR["vision_config"],
        "no loss of its own",
        {"pixel_values": (2, 3, 16, 16)},
    ),
    (
        "T5EncoderModel",
        "T5Config",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "no loss of its own",
        {"input_ids": (2, 16)},
    ),
]


def directory(
    tmp_path: Path, architecture: str, config: str, sizes: dict[str, Any], **changes: object
) -> str:
    """Write a config.json, with some of its values changed afterwards, and return its directory."""
    import transformers

    path = tmp_path / architecture
    getattr(transformers, config)(**sizes, architectures=[architecture]).save_pretrained(path)
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return str(path)
