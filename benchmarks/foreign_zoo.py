"""Models that others wrote, from their configurations with random weights: small ones for a CPU, large for a GPU.

Nothing is downloaded and nothing of the libraries is changed. ``SMALL`` and ``LARGE`` say by name how to build
a model with a batch and a loss, as somebody would who trains it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Built(NamedTuple):
    """A model, what it is called with, and the loss of what it returns."""

    model: nn.Module
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    loss: Callable[[Any], Tensor]


class Entry(NamedTuple):
    """Where a model is from, and how it is built."""

    library: str
    build: Callable[[], Built]


SMALL: dict[str, Entry] = {}
LARGE: dict[str, Entry] = {}


def _entry(library: str, table: dict[str, Entry] = SMALL) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    def keep(build: Callable[[], Built]) -> Callable[[], Built]:
        table[build.__name__.removeprefix("large_")] = Entry(library, build)
        return build

    return keep


class WithLoss(nn.Module):
    """A model and the loss of dense results, which belongs inside what is fitted."""

    def __init__(self, model: nn.Module, target: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("target", target)

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        result = self.model(*args, **keywords)
        return functional.mse_loss(getattr(result, "sample", result), self.target)


def own_loss(result: Any) -> Tensor:
    return result.loss


def itself(result: Any) -> Tensor:
    return result


def _classes(count: int, labels: Tensor) -> Callable[[Any], Tensor]:
    return lambda result: functional.cross_entropy(getattr(result, "logits", result).float(), labels % count)


def torchvision() -> Any:
    """The package; where its compiled operators don't load, two that it asks for at import are declared before it."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _declared.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _declared[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return importlib.import_module("torchvision")


_declared: list[torch.library.Library] = []


def _library(name: str) -> Any:
    """A library; torchvision first, which most of them import where it is there."""
    if importlib.util.find_spec("torchvision") is not None:
        torchvision()
    return importlib.import_module(name)


# ---- transformers: language models -------------------------------------------------------------------------------


def _text(name: str, config: str, model: str, batch: int = 4, length: int = 128, **changes: Any) -> None:
    """A model that takes tokens and labels of the same shape."""

    def build() -> Built:
        library: Any = _library("transformers")
        settings: Any = getattr(library, config)(**{"vocab_size": 300, **changes})
        tokens = torch.randint(3, 300, (batch, length))
        return Built(getattr(library, model)(settings), (), {"input_ids": tokens, "labels": tokens}, own_loss)

    SMALL[name] = Entry("transformers", build)


_WIDE = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
_DECODER = {**_WIDE, "use_cache": False, "pad_token_id": 0}
_GROUPED = {**_DECODER, "num_key_value_heads": 2}

_text("llama", "LlamaConfig", "LlamaForCausalLM", **_GROUPED)
_text("mistral", "MistralConfig", "MistralForCausalLM", **_GROUPED, sliding_window=48)
_text("qwen3", "Qwen3Config", "Qwen3ForCausalLM", **_GROUPED, head_dim=32)
_text("gemma2", "Gemma2Config", "Gemma2ForCausalLM", **_GROUPED, head_dim=32, sliding_window=48)
_text("phi3", "Phi3Config", "Phi3ForCausalLM", **_GROUPED, bos_token_id=1, eos_token_id=2)
_text("olmo2", "Olmo2Config", "Olmo2ForCausalLM", **_GROUPED)
_text("mixtral", "MixtralConfig", "MixtralForCausalLM", **_GROUPED, num_local_experts=4)
_text(
    "qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", **_GROUPED, num_experts=4, moe_intermediate_size=64,
    shared_expert_intermediate_size=64, num_experts_per_tok=2,
)  # fmt: skip
_text("gpt2", "GPT2Config", "GPT2LMHeadModel", n_embd=128, n_layer=4, n_head=4, n_positions=256, use_cache=False)
_text("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", **_DECODER)
_text("gptj", "GPTJConfig", "GPTJForCausalLM", n_embd=128, n_layer=4, n_head=4, rotary_dim=16, use_cache=False)
_text(
    "opt", "OPTConfig", "OPTForCausalLM", hidden_size=128, num_hidden_layers=4, ffn_dim=512, num_attention_heads=4,
    word_embed_proj_dim=128, use_cache=False, pad_token_id=0,
)  # fmt: skip
_text("bloom", "BloomConfig", "BloomForCausalLM", hidden_size=128, n_layer=4, n_head=4, use_cache=False)
_text("falcon", "FalconConfig", "FalconForCausalLM", **_DECODER)
_text("bert", "BertConfig", "BertForMaskedLM", **_WIDE)
_text("roberta", "RobertaConfig", "RobertaForMaskedLM", **_WIDE)
_text("albert", "AlbertConfig", "AlbertForMaskedLM", **_WIDE, embedding_size=32)
_text("electra", "ElectraConfig", "ElectraForMaskedLM", **_WIDE, embedding_size=32)
_text("deberta_v2", "DebertaV2Config", "DebertaV2ForMaskedLM", **_WIDE, relative_attention=True,
      pos_att_type=["p2c", "c2p"], position_buckets=32)  # fmt: skip
_text("distilbert", "DistilBertConfig", "DistilBertForMaskedLM", dim=128, n_layers=4, n_heads=4, hidden_dim=512)
_text("mpnet", "MPNetConfig", "MPNetForMaskedLM", **_WIDE)
_text("longformer", "LongformerConfig", "LongformerForMaskedLM", **_WIDE, attention_window=32)
_text("big_bird", "BigBirdConfig", "BigBirdForMaskedLM", batch=2, length=192, **_WIDE, block_size=8,
      num_random_blocks=2)  # fmt: skip
_text("reformer", "ReformerConfig", "ReformerModelWithLMHead", batch=2, is_decoder=True, hidden_size=64,
      attn_layers=["local", "lsh"], num_attention_heads=4, attention_head_size=16, feed_forward_size=128,
      axial_pos_shape=[8, 16], axial_pos_embds_dim=[16, 48], num_buckets=4, local_attn_chunk_length=32,
      lsh_attn_chunk_length=32, use_cache=False, hash_seed=0, hidden_dropout_prob=0.0,
      local_attention_probs_dropout_prob=0.0)  # fmt: skip
_text("xlnet", "XLNetConfig", "XLNetLMHeadModel", d_model=64, n_layer=3, n_head=4, d_inner=256)
_text("mamba", "MambaConfig", "MambaForCausalLM", batch=4, length=32, hidden_size=96, num_hidden_layers=2,
      use_cache=False)  # fmt: skip
_text("t5", "T5Config", "T5ForConditionalGeneration", length=96, decoder_start_token_id=0, pad_token_id=0, d_model=128,
      d_kv=32, d_ff=256, num_layers=3, num_decoder_layers=3, num_heads=4, feed_forward_proj="gated-gelu",
      use_cache=False)  # fmt: skip
_SEQ2SEQ = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
_text("bart", "BartConfig", "BartForConditionalGeneration", length=96, **_SEQ2SEQ, forced_eos_token_id=2)


# ---- transformers: images, sound, several modes ------------------------------------------------------------------


def _hugging(config: str, model: str, **changes: Any) -> Any:
    library: Any = _library("transformers")
    return getattr(library, model)(getattr(library, config)(**changes))


@_entry("transformers")
def whisper() -> Built:
    model = _hugging("WhisperConfig", "WhisperForConditionalGeneration", **_SEQ2SEQ, vocab_size=300,
                     max_source_positions=150, suppress_tokens=None, begin_suppress_tokens=None)  # fmt: skip
    batch = {"input_features": torch.randn(8, 80, 300), "labels": torch.randint(3, 300, (8, 50))}
    return Built(model, (), batch, own_loss)


@_entry("transformers")
def wav2vec2() -> Built:
    model = _hugging("Wav2Vec2Config", "Wav2Vec2ForCTC", **_WIDE, vocab_size=32, conv_dim=(32, 32, 32),
                     conv_stride=(5, 4, 4), conv_kernel=(10, 4, 4), num_conv_pos_embeddings=16,
                     num_conv_pos_embedding_groups=4, mask_time_prob=0.0)  # fmt: skip
    return Built(model, (torch.randn(4, 12800),), {"labels": torch.randint(1, 32, (4, 12))}, own_loss)


def _pictures(batch: int = 16, size: int = 64) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(10, (batch,))


def _seen(name: str, config: str, model: str, **changes: Any) -> None:
    """A model of transformers that puts pictures into classes."""

    def build() -> Built:
        pixels, labels = _pictures()
        return Built(
            _hugging(config, model, num_labels=10, **changes), (), {"pixel_values": pixels, "labels": labels}, own_loss
        )

    SMALL[name] = Entry("transformers", build)


_PATCHES = {**_WIDE, "image_size": 64, "patch_size": 8}
_seen("vit", "ViTConfig", "ViTForImageClassification", **_PATCHES)
_seen("beit", "BeitConfig", "BeitForImageClassification", **_PATCHES)
_seen("dinov2", "Dinov2Config", "Dinov2ForImageClassification", **_PATCHES)
_seen("swin", "SwinConfig", "SwinForImageClassification", image_size=64, patch_size=4, embed_dim=48, depths=[2, 2],
      num_heads=[2, 4], window_size=4)  # fmt: skip
_seen("convnext", "ConvNextConfig", "ConvNextForImageClassification", hidden_sizes=[32, 64, 128], depths=[2, 2, 2],
      num_stages=3)  # fmt: skip
_seen("segformer", "SegformerConfig", "SegformerForImageClassification", num_encoder_blocks=2, depths=[2, 2],
      sr_ratios=[4, 2], hidden_sizes=[32, 64], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
      mlp_ratios=[4, 4])  # fmt: skip


@_entry("transformers")
def clip() -> Built:
    text = {**_WIDE, "vocab_size": 300, "max_position_embeddings": 32, "eos_token_id": 2}
    model = _hugging("CLIPConfig", "CLIPModel", text_config=text, vision_config=_PATCHES, projection_dim=32)
    batch = {"input_ids": torch.randint(3, 300, (16, 32)), "pixel_values": _pictures()[0], "return_loss": True}
    return Built(model, (), batch, own_loss)


@_entry("transformers")
def detr() -> Built:
    """Boxes are matched by SciPy in the middle of the loss."""
    library: Any = _library("transformers")
    backbone = library.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"])
    model = _hugging("DetrConfig", "DetrForObjectDetection", backbone_config=backbone, use_pretrained_backbone=False,
                     use_timm_backbone=False, backbone=None, num_queries=10, d_model=32, encoder_layers=2,
                     decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4,
                     decoder_attention_heads=4, num_labels=5)  # fmt: skip
    box = torch.tensor([[0.5, 0.5, 0.2, 0.3], [0.3, 0.6, 0.1, 0.2]])
    labels = [{"class_labels": torch.tensor([1, 3]), "boxes": box} for _ in range(8)]
    return Built(model, (), {"pixel_values": torch.randn(8, 3, 128, 128), "labels": labels}, own_loss)


# ---- timm and torchvision ----------------------------------------------------------------------------------------


def _timm(name: str, model: str, batch: int = 16, size: int = 64, **changes: Any) -> None:
    def build() -> Built:
        library: Any = _library("timm")
        pixels, labels = _pictures(batch, size)
        made = library.create_model(model, num_classes=10, **changes)
        return Built(made, (pixels,), {}, _classes(10, labels))

    SMALL[name] = Entry("timm", build)


_THIN = {"embed_dim": 64, "depth": 4, "num_heads": 4, "img_size": 64, "patch_size": 8}
_timm("timm_vit", "vit_tiny_patch16_224", **_THIN, drop_path_rate=0.1)
_timm("timm_cait", "cait_xxs24_224", img_size=64, patch_size=8, embed_dim=48, depth=3, num_heads=4)
_timm("timm_xcit", "xcit_nano_12_p16_224", img_size=64, embed_dim=48, depth=3, num_heads=4)
_timm("timm_mixer", "gmixer_12_224", batch=2, size=224)
_timm("timm_resnet", "resnet10t", batch=16, drop_path_rate=0.1)
_timm("timm_convnext", "convnext_atto", batch=12, drop_path_rate=0.1)
_timm("timm_efficientnet", "efficientnet_lite0", drop_rate=0.2, drop_path_rate=0.2)
_timm("timm_mobilenet", "mobilenetv3_small_050", batch=16)
_timm("timm_regnet", "regnetx_002", batch=16)
_timm("timm_coatnet", "coatnet_pico_rw_224", batch=1, size=224)
_timm("timm_levit", "levit_128s", batch=2, size=224)
_timm("timm_swin_v2", "swinv2_cr_tiny_224", img_size=64, embed_dim=48, depths=(2, 2), num_heads=(2, 4), window_size=4)


def _vision(name: str, model: str, **changes: Any) -> None:
    def build() -> Built:
        pixels, labels = _pictures()
        made = getattr(torchvision().models, model)(num_classes=10, **changes)
        return Built(made, (pixels,), {}, _classes(10, labels))

    SMALL[name] = Entry("torchvision", build)


_vision("tv_mobilenet", "mobilenet_v2", width_mult=0.35)
_vision("tv_densenet", "DenseNet", growth_rate=8, block_config=(3, 3), num_init_features=16, drop_rate=0.1)
_vision("tv_densenet_own", "DenseNet", growth_rate=8, block_config=(3, 3), num_init_features=16, memory_efficient=True)
_vision("tv_swin", "SwinTransformer", patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4],
        window_size=[4, 4], stochastic_depth_prob=0.2)  # fmt: skip
_vision("tv_vit", "VisionTransformer", image_size=64, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64,
        mlp_dim=256)  # fmt: skip
_vision("tv_shufflenet", "shufflenet_v2_x0_5")


@_entry("torchvision")
def tv_resnet() -> Built:
    module = importlib.import_module(torchvision().models.resnet.__name__)
    pixels, labels = _pictures()
    return Built(module.ResNet(module.BasicBlock, [1, 1, 1, 1], 10), (pixels,), {}, _classes(10, labels))


@_entry("torchvision")
def tv_segmentation() -> Built:
    model = torchvision().models.segmentation.lraspp_mobilenet_v3_large(
        num_classes=5, weights=None, weights_backbone=None
    )
    pixels = torch.randn(8, 3, 64, 64)
    return Built(model, (pixels,), {}, lambda result: result["out"].square().mean())


# ---- diffusers ---------------------------------------------------------------------------------------------------


@_entry("diffusers")
def unet() -> Built:
    library: Any = _library("diffusers")
    model = library.UNet2DModel(
        sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    noise = torch.randn(4, 3, 32, 32)
    return Built(WithLoss(model, noise), (torch.randn(4, 3, 32, 32), torch.randint(1000, (4,))), {}, itself)


@_entry("diffusers")
def unet_with_text() -> Built:
    library: Any = _library("diffusers")
    model = library.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8,
    )  # fmt: skip
    noise, text = torch.randn(4, 4, 16, 16), torch.randn(4, 8, 32)
    return Built(WithLoss(model, noise), (torch.randn(4, 4, 16, 16), torch.randint(1000, (4,)), text), {}, itself)


@_entry("diffusers")
def autoencoder() -> Built:
    library: Any = _library("diffusers")
    model = library.AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(32, 64), latent_channels=4, layers_per_block=1,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    pixels = torch.randn(2, 3, 48, 48)
    return Built(WithLoss(model, pixels), (pixels,), {"sample_posterior": True}, itself)


@_entry("diffusers")
def diffusion_transformer() -> Built:
    library: Any = _library("diffusers")
    model = library.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=32, in_channels=4, out_channels=4, num_layers=4, sample_size=16,
        patch_size=2, num_embeds_ada_norm=20,
    )  # fmt: skip
    times, labels = torch.randint(1000, (16,)), torch.randint(20, (16,))
    inputs = {"timestep": times, "class_labels": labels}
    return Built(WithLoss(model, torch.randn(16, 4, 16, 16)), (torch.randn(16, 4, 16, 16),), inputs, itself)


# ---- graphs, operators, sequences --------------------------------------------------------------------------------


def _on_a_graph(name: str, model: str, **changes: Any) -> None:
    def build() -> Built:
        library: Any = _library("torch_geometric.nn")
        nodes, labels = torch.randn(3000, 32), torch.randint(10, (3000,))
        edges = torch.randint(3000, (2, 18000))
        made = getattr(library, model)(32, 64, num_layers=4, out_channels=10, dropout=0.2, **changes)
        return Built(made, (nodes, edges), {}, _classes(10, labels))

    SMALL[name] = Entry("torch_geometric", build)


_on_a_graph("gcn", "GCN", norm="batch_norm")
_on_a_graph("gat", "GAT", heads=2)
_on_a_graph("sage", "GraphSAGE", jk="cat")
_on_a_graph("gin", "GIN")
_on_a_graph("pna", "PNA", aggregators=["mean", "max", "std"], scalers=["identity"], deg=torch.arange(20))


def _operator(name: str, model: str, **changes: Any) -> None:
    def build() -> Built:
        library: Any = _library("neuralop.models")
        made = getattr(library, model)(in_channels=1, out_channels=1, hidden_channels=16, **changes)
        return Built(WithLoss(made, torch.randn(8, 1, 48, 48)), (torch.randn(8, 1, 48, 48),), {}, itself)

    SMALL[name] = Entry("neuraloperator", build)


_operator("fno", "FNO", n_modes=(8, 8), n_layers=4)
_operator("tfno", "TFNO", n_modes=(8, 8), n_layers=4, rank=0.5)
_operator("uno", "UNO", uno_out_channels=[16, 16, 16], uno_n_modes=[[8, 8], [4, 4], [8, 8]],
          uno_scalings=[[1, 1], [0.5, 0.5], [2, 2]], n_layers=3, channel_mlp_skip="linear")  # fmt: skip


class Tagger(nn.Module):
    """A recurrent network over sentences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(300, 32), nn.Linear(64, 10)
        self.layers = nn.LSTM(32, 64, 2, dropout=0.2, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.words(words), lengths, batch_first=True)
        return self.out(nn.utils.rnn.pad_packed_sequence(self.layers(packed)[0], batch_first=True)[0].mean(1))


@_entry("torch")
def packed_lstm() -> Built:
    lengths = torch.arange(56, 24, -1)
    labels = torch.randint(10, (32,))
    return Built(Tagger(), (torch.randint(300, (32, 56)), lengths), {}, _classes(10, labels))


@_entry("torch")
def torch_transformer() -> Built:
    model = nn.Transformer(128, 4, 2, 2, 512, batch_first=True)
    source, target = torch.randn(8, 48, 128), torch.randn(8, 40, 128)
    return Built(WithLoss(model, torch.randn(8, 40, 128)), (source, target), {}, itself)


@_entry("peft")
def llama_with_lora() -> Built:
    library: Any = _library("peft")
    model, args, batch, loss = SMALL["llama"].build()
    settings = library.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM")
    return Built(library.get_peft_model(model, settings), args, batch, loss)


# ---- large ones, for a GPU ---------------------------------------------------------------------------------------


def _tokens(model: nn.Module, classes: int, batch: int, length: int) -> Built:
    tokens = torch.randint(classes, (batch, length))
    return Built(model.to(torch.bfloat16), (), {"input_ids": tokens, "labels": tokens}, own_loss)


@_entry("transformers", LARGE)
def large_llama() -> Built:
    model = _hugging("LlamaConfig", "LlamaForCausalLM", vocab_size=32000, hidden_size=2048, intermediate_size=5632,
                     num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                     max_position_embeddings=2048, use_cache=False)  # fmt: skip
    return _tokens(model, 32000, 8, 2048)


@_entry("transformers", LARGE)
def large_bert() -> Built:
    model = _hugging("BertConfig", "BertForMaskedLM", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                     intermediate_size=4096)  # fmt: skip
    return _tokens(model, 30522, 32, 512)


@_entry("transformers", LARGE)
def large_t5() -> Built:
    model = _hugging("T5Config", "T5ForConditionalGeneration", decoder_start_token_id=0, pad_token_id=0,
                     vocab_size=32128, d_model=1024, d_kv=64, d_ff=2816, num_layers=12, num_decoder_layers=12,
                     num_heads=16, feed_forward_proj="gated-gelu", use_cache=False)  # fmt: skip
    return _tokens(model, 32128, 16, 512)


@_entry("transformers", LARGE)
def large_gpt2() -> Built:
    model = _hugging("GPT2Config", "GPT2LMHeadModel", n_embd=1024, n_layer=24, n_head=16, use_cache=False)
    return _tokens(model, 50257, 8, 1024)


def _large_pictures(name: str, model: str, batch: int, dtype: torch.dtype = torch.float32) -> None:
    def build() -> Built:
        pixels, labels = torch.randn(batch, 3, 224, 224, dtype=dtype), torch.randint(1000, (batch,))
        return Built(getattr(torchvision().models, model)().to(dtype), (pixels,), {}, _classes(1000, labels))

    LARGE[name] = Entry("torchvision", build)


_large_pictures("vit", "vit_l_16", 64, torch.bfloat16)
_large_pictures("swin", "swin_b", 48)
_large_pictures("convnext", "convnext_base", 48)
_large_pictures("resnet", "resnet50", 96)
_large_pictures("densenet", "densenet201", 48)
