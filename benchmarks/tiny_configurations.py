"""How the configuration of any transformers architecture is made tiny: by the names of its attributes."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE = 64, 4, 16, 128
VOCABULARY, POSITIONS, IMAGE, WINDOW = 256, 128, 32, 8
MOST_LAYERS = 4
"""Two blocks, or one of each kind where blocks differ, but not more than this."""
KEPT_TOKENS = 100
"""Special tokens below stay as they are, the others move to this number and beyond."""

_LAYERS = re.compile(
    r"^(num_hidden_layers|n_layers?|num_layers|(num_)?(en|de)coder_layers|num_(en|de)coder_layers"
    r"|\w+_num_hidden_layers|num_blocks|depth|t2u_\w+_layers|speech_encoder_layers|num_global_layers"
    r"|(en|de)coder_num_hidden_layers|num_local_layers|conf_num_hidden_layers|attention_layers)$"
)
_DEPTHS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_LAYER_INDEXES = re.compile(r"(_idxs|_indices|_indexes|_layer_ids|_layers|_layer_indexes|_block_ids)$")
_KEYS = re.compile(
    r"^(\w*key_value_heads\w*|num_kv_heads|kv_n_heads|multi_query_group_num|num_query_groups)$"
)
_QUERIES = re.compile(r"^(\w*attention_heads|n_heads?|num_heads)$")
_TOKEN = re.compile(r"(_token_id|_token_index|_token_ids|^suppress_tokens|^begin_suppress_tokens)$")
_DROPPED = re.compile(
    r"^(id2label|label2id|stage_names|out_features|out_indices|dtype|transformers_version)$"
)
_DROPOUT = re.compile(r"(drop(out|_path|_rate|_connect|_mlp)|layerdrop|_pdrop$)")


def _to(value: int) -> Callable[[int], int]:
    return lambda _: value


def _most(value: int) -> Callable[[int], int]:
    return lambda found: min(found, value)


_RULES: tuple[tuple[str, Callable[[int], int]], ...] = (
    (r"^(type_vocab_size|segment_types|num_labels|\w*kernel\w*|conv_width)$", lambda found: found),
    (r"^max_(relative_positions|span_width)$", _most(WINDOW)),
    # Mixtures of experts.
    (r"(experts?_per_tok(en)?|^moe_(top_?k|k)|^top_?k|^num_selected_experts)$", _most(2)),
    (r"^(n_group|num_expert_group|n_groups)$", _most(2)),
    (r"^topk_group$", _to(1)),
    (r"^(n|num)_shared_experts$", _most(1)),
    (
        r"^(num_(local_)?experts|n_routed_experts|moe_num_experts|num_routed_experts|zero_expert_num)$",
        _most(4),
    ),
    (r"^(first_k_dense_replace|num_dense_layers|moe_layer_start_index)$", _most(1)),
    (r"expert_capacity", _most(64)),
    # Heads.
    (r"^linear_(num_key|num_value)_heads$", lambda found: 4 if found > 16 else 2),
    (r"^(index_n_heads|guided_attention_loss_num_heads)$", _most(2)),
    (r"^mamba_(n|num)_heads$|^n_mamba_heads$", _most(8)),
    (
        r"^(\w*attention_heads|n_heads?|num_heads|\w+_attention_heads|\w*num_heads|(en|de)coder_heads)$",
        _to(HEADS),
    ),
    (r"^rotary_dim$", _to(8)),
    (r"^qk_head_dim$", _to(2 * HEAD_DIM)),
    (
        r"^(\w*head_dim|d_kv|d_head|kv_channels|attention_head_size|mamba_d_head|\w*dim_head|cross_head_dim)$",
        _to(HEAD_DIM),
    ),
    (r"^(\w+_rank|time_step_rank)$", _most(16)),
    (r"^index_topk$", _to(8)),
    # State-space models and convolutions.
    (r"^(mamba_d_state|state_size|ssm_state_size|mamba_state_size)$", _most(8)),
    (r"^((mamba_|attention_|attn_)?chunk_size|block_size)$", lambda found: found if found <= 0 else 16),
    (r"^(conv_pos_kernel_size|num_conv_pos_embeddings)$", _most(16)),
    (r"^num_conv_pos_embedding_groups$", _most(4)),
    (r"^num_filters$", _most(4)),  # doubled from stage to stage
    # Widths.
    (
        r"^(\w*intermediate_size\w*|d_ff|dff|\w*ffn_dim|ffn_hidden_size|feed_forward_size|d_inner|n_inner|dim_ff"
        r"|dense_intermediate_size|inner_dim|expert_ffn_hidden_size|mlp_dim|ffn_size)$",
        lambda found: INTERMEDIATE if found > 0 else found,
    ),
    (
        r"^(\w*hidden_size\w*|d_model|n_embd|dim|\w*embed_dim|\w*embedding_size|emb_dim|embedding_dim|\w*hidden_dim"
        r"|word_embed_proj_dim|\w*proj_dim|\w*projection_dim|projection_size|output_dim|input_dim|\w*output_size"
        r"|lru_width|d_rel|d_latents|model_dim|d_embed|entity_emb_size|pooler_size|width|\w*_embd|latent_dim"
        r"|attention_hidden_size|base_channels|classifier_proj_size|subsampling_conv_channels|conv_channels"
        r"|codevector_dim|adapter_(in|out)_dim|\w*output_channels|aspp_out_channels|memory_dim|true_hidden_size)$",
        lambda found: HIDDEN if found >= 16 else found,
    ),
    (r"^(num_codevectors_per_group|num_negatives|xvector_output_dim|num_clusters)$", _most(16)),
    # Sizes of what goes in.
    (r"vocab|codebook_size|^\w*num_embeddings$", _most(VOCABULARY)),
    (
        r"(max_position\w*|n_positions|max_seq\w*|n_ctx|context_length|max_\w*positions|max_\w*length|max_len"
        r"|rel_extent|model_max_length)$",
        _most(POSITIONS),
    ),
    (
        r"^(\w*sliding_window\w*|attention_window\w*|local_attention|window_size|\w*local_window|keep_window_size"
        r"|attention_window_size)$",
        _most(WINDOW),
    ),
    (r"^(image_size|img_size|input_size|crop_size)$", _most(IMAGE)),
    (r"^(patch_size|encoder_stride)$", _most(8)),
    (r"^(num_mel_bins|input_feat_per_channel|feature_size|n_mels)$", _most(16)),
    (r"^num_patches$", _to((IMAGE // 8) ** 2)),
)


def shrink(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration (as `to_dict` gives it) of the same make, with little of everything.

    Widths, heads, vocabularies and images become small by the names of their attributes, blocks are thinned
    out to two or one of each kind, lists for stages keep their length and proportions, and dropout is on.
    Parts within parts are made tiny in the same way.
    """
    return _shrink(raw, {})


def merged(raw: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `raw` with `changes` in it, at any depth; what is changed to `"DROP"` is left out."""
    result = copy.deepcopy(raw)
    for name, value in changes.items():
        if value == "DROP":
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result


def _shrink(raw: dict[str, Any], tokens: dict[int, int]) -> dict[str, Any]:
    layers = next((value for name, value in raw.items() if name in _DEPTHS and type(value) is int), 0)
    kept = _kept_layers(raw, layers)
    tiny = {}
    for name, value in raw.items():
        if _DROPPED.match(name):
            continue
        if isinstance(value, dict) and _by_layer(value):
            special = {int(number): part for number, part in value.items()}
            tiny[name] = {
                str(new): _shrink(special[old], tokens) for new, old in enumerate(kept) if old in special
            }
        elif isinstance(value, dict):
            tiny[name] = _shrink(value, tokens)
        elif isinstance(value, list | tuple):
            tiny[name] = _list(name, list(value), layers, kept, tokens)
        elif type(value) is float and value == 0.0 and _DROPOUT.search(name):
            tiny[name] = 0.1
        elif _TOKEN.search(name) and type(value) is int:
            tiny[name] = _token(value, tokens)
        elif type(value) is int and _LAYERS.match(name):
            tiny[name] = len(kept) if value == layers else min(value, 2)
        elif type(value) is int and _KEYS.match(name):
            # Without groups of queries it stays so.
            tiny[name] = HEADS if value in _query_heads(raw) else min(value, 2)
        elif type(value) is int:
            tiny[name] = _number(name, value)
        else:
            tiny[name] = value
    return tiny


def _number(name: str, value: int) -> int:
    for pattern, change in _RULES:
        if re.search(pattern, name):
            return change(value)
    return value


def _kept_layers(raw: dict[str, Any], layers: int) -> list[int]:
    """Return which of the layers stay: the first of each kind, by all lists that describe them one by one."""
    described = [value for value in raw.values() if isinstance(value, list | tuple) and len(value) == layers]
    single = [
        {int(number): part for number, part in value.items()}
        for value in raw.values()
        if isinstance(value, dict) and _by_layer(value)
    ]
    listed: dict[str, int] = {}
    singled: dict[str, int] = {}
    for layer in range(layers):
        listed.setdefault(repr([value[layer] for value in described]), layer)
        singled.setdefault(repr([value.get(layer) for value in single]), layer)
    kinds = dict.fromkeys((*listed.values(), *singled.values()))
    kept = sorted(list(kinds)[:MOST_LAYERS])
    return kept if len(kept) >= 2 else [0, 1]


def _query_heads(raw: dict[str, Any]) -> set[int]:
    return {value for name, value in raw.items() if _QUERIES.match(name) and type(value) is int}


def _by_layer(value: dict[str, Any]) -> bool:
    """Tell whether a part holds what is special about single layers, by their numbers."""
    return bool(value) and all(str(key).isdigit() and isinstance(part, dict) for key, part in value.items())


def _list(name: str, value: list[Any], layers: int, kept: list[int], tokens: dict[int, int]) -> list[Any]:
    whole = bool(value) and all(type(item) is int for item in value)
    if _TOKEN.search(name) and whole:
        return [_token(item, tokens) for item in value]
    if layers > MOST_LAYERS and len(value) == layers:
        return [_number(name, value[layer]) if type(value[layer]) is int else value[layer] for layer in kept]
    if _LAYER_INDEXES.search(name) and whole and sorted(set(value)) == value:
        return [item for item in value if item < len(kept)]
    return _list_of_stages(name, value) if whole else value


def _list_of_stages(name: str, value: list[int]) -> list[int]:
    if name in {"depths", "stage_num_blocks", "num_block_repeats", "depth"}:
        return [min(item, 2) for item in value]
    if name == "image_size":
        return [IMAGE] * len(value)
    if re.search(r"(hidden_sizes|embed_dims?|out_channels|channels|conv_dim|tdnn_dim|dims)$", name):
        return _proportional(value)
    return value


def _proportional(widths: list[int]) -> list[int]:
    """Divide widths by the same power of two, so that the smallest is 16 or a little more."""
    factor = 1
    while min(widths) // (2 * factor) >= 16 and all(width % (2 * factor) == 0 for width in widths):
        factor *= 2
    return [width // factor for width in widths]


def _token(value: int, tokens: dict[int, int]) -> int:
    """Move special tokens into the small vocabulary, different ones to different places."""
    if value < KEPT_TOKENS:
        return value
    return tokens.setdefault(value, KEPT_TOKENS + len(tokens))
