"""Train with Lightning and its default progress bar."""

import argparse

import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 500))

    def training_step(self, batch, _index):
        (tokens,) = batch
        loss = torch.nn.functional.cross_entropy(self.net(tokens).flatten(0, 1), tokens.flatten())
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    data = torch.utils.data.TensorDataset(torch.randint(0, 500, (4096, 64)))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=given.devices,
        strategy="ddp" if given.devices > 1 else "auto",
        max_steps=given.steps,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=given.batch))


if __name__ == "__main__":
    main()
