"""`fit` inside the training tools that people have: Hugging Face's Trainer, accelerate, PEFT."""

from __future__ import annotations

import copy
import inspect

import peft
import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from pebbling.torch import fit, why

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")


def tiny():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config)


TOKENS = torch.randint(64, (8, 32), generator=torch.Generator().manual_seed(1))


def data():
    return [{"input_ids": row, "labels": row} for row in TOKENS]


def budget(model):
    batch = TOKENS[:4]
    found = why(model, input_ids=batch, labels=batch)
    return int(0.75 * found.above)


def trained(model, folder):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        seed=3,
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=data()).train()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_trainer(tmp_path):
    model = tiny()
    wanted = trained(copy.deepcopy(model), tmp_path / "a")
    fitted = fit(model, memory=budget(model), time_limit=1)
    assert same(trained(fitted, tmp_path / "b"), wanted)
    assert fitted.plan.replayed
    fitted.save_pretrained(tmp_path / "saved")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "saved").architectures == ["LlamaForCausalLM"]
    assert inspect.signature(fitted.forward) == inspect.signature(tiny().forward)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision):
    def steps(model):
        AcceleratorState._reset_state(True)
        accelerator = Accelerator(mixed_precision=precision, cpu=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model, optimizer = accelerator.prepare(model, optimizer)
        for _ in range(3):
            loss = model(input_ids=TOKENS[:4], labels=TOKENS[:4]).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        return {name: value.detach().clone() for name, value in accelerator.unwrap_model(model).state_dict().items()}

    model = tiny()
    wanted = steps(copy.deepcopy(model))
    assert same(steps(fit(model, memory=budget(model), time_limit=1)), wanted)


@pytest.mark.parametrize("over", [True, False])
def test_peft(over):
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)

    def steps(model):
        torch.manual_seed(5)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for _ in range(3):
            model(input_ids=TOKENS[:4], labels=TOKENS[:4]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return {name: value.detach().clone() for name, value in model.state_dict().items()}

    torch.manual_seed(4)
    wanted = steps(peft.get_peft_model(tiny(), config))
    torch.manual_seed(4)
    if over:
        model = peft.get_peft_model(tiny(), config)
        model = fit(model, memory=budget(model), time_limit=1)
    else:
        inner = tiny()
        model = peft.get_peft_model(fit(inner, memory=budget(inner), time_limit=1), config)
    found = steps(model)
    assert [torch.equal(a, b) for a, b in zip(found.values(), wanted.values())] == [True] * len(wanted)
